//! Who owns what, and how a command gets there.
