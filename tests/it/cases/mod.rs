//! The public cases (C01–C78), a test each, named after the case. docs/testing.md says which test plays which.

/// A server with these settings; the test ends here with a note if the server that the environment names has not
/// got them.
macro_rules! world {
    ($($key:literal = $value:literal),*) => { world!(@start start $($key = $value),*) };
    (durable $($key:literal = $value:literal),*) => { world!(@start durable $($key = $value),*) };
    (@$_:ident $start:ident $($key:literal = $value:literal),*) => {
        match $crate::cases::world::World::$start(&[$(($key, $value)),*]).await {
            Some(world) => world,
            None => {
                eprintln!("skipped: the server under test cannot be used for this");
                return;
            }
        }
    };
}

mod admin;
mod consumer;
mod core;
mod disk;
mod durability;
mod group;
mod member;
mod offsets;
mod rebalance;
mod robust;
mod statics;
mod table;
mod words;
mod world;
