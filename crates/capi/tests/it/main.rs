//! The C interface as C sees it: the header, programs that use it, and bad arguments.

mod arguments;
mod header;
mod program;
