//! A runtime whose clock stands still until nobody has anything to do, and then leaps to the next timer: what waits a
//! minute takes no time, and takes it in the same order every time.

use std::cell::RefCell;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .max_blocking_threads(4)
            .event_interval(1)
            .build()
            .expect("a runtime can be made"),
    );
}

/// Runs one input to its end.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.with_borrow(|runtime| runtime.block_on(work))
}
