//! The owner of a shard.
mod clock;
mod lock;
mod point;
mod slots;
