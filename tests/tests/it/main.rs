//! One binary of end-to-end tests: the code checks itself, then the server is asked from outside.

mod cli;
mod crash;
mod damage;
mod definitions;
mod doors;
mod faults;
mod guarantees;
mod io;
mod life;
mod limits;
mod loads;
mod power;
mod room;
mod subject;
mod tidy;
mod tls;
mod tour;
mod transactions;
mod wire;
