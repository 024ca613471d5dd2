//! The journal, told as stories.
