//! A budget of memory: a global allocator that counts, so that an input which costs far more than its bytes is a
//! finding. What libFuzzer itself allocates is not counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE_BYTES.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    // another thread may be adding too; what is lost then is a few bytes
    if live > PEAK_BYTES.load(Relaxed) {
        PEAK_BYTES.fetch_max(live, Relaxed);
    }
}

// SAFETY: everything is the system's; only sums are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // both exist while one is copied
        add(bytes);
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is taken from now on.
#[must_use]
pub fn watch() -> Watch {
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    Watch(before)
}

/// See [`watch`]. One at a time: a later one makes an earlier one forget what it saw.
pub struct Watch(usize);

impl Watch {
    /// Fails if more than `allowance_bytes` were taken at any one moment since.
    ///
    /// # Panics
    /// That is how a target fails.
    pub fn check(self, what: &str, allowance_bytes: usize) {
        let peak_bytes = PEAK_BYTES.load(Relaxed).saturating_sub(self.0);
        assert!(
            peak_bytes <= allowance_bytes,
            "{what} took {peak_bytes} bytes of memory; {allowance_bytes} are allowed"
        );
    }
}
