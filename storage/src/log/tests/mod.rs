//! The log's own fault suite. Tests named `case_NN_…` are the cases of the storage plan under their numbers, those named
//! `stNN_…` come from public fault reports of other systems.

mod basics;
mod cases;
mod damage;
mod driven;
mod golden;
mod model;
mod power;
mod refusals;
mod room;
mod support;
