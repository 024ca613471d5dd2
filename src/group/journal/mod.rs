//! What operators are told about groups: their members, who commits, and why they rebalanced.

mod inspect;
