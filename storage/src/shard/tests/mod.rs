//! Tests of the state machine. `fixture` builds tables and commands; each other file is about one subject.

mod fixture;

mod identity;
mod image;
mod indexes;
mod loads;
mod parts;
mod random;
mod reads;
mod writes;
