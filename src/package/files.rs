//! The members of a package in the order in which they are stored.
