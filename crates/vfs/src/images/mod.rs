//! Databases in images: which image a name means, which images are open, and the files in them.

mod file;
mod name;
mod open;
mod table;

pub use open::Images;
pub use table::{Adopted, adopt};
