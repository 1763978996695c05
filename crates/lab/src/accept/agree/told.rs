//! How a case tells what a call gave.

/// The number of an error, or "ok".
pub(super) fn told<T, E: Into<std::io::Error>>(result: std::result::Result<T, E>) -> String {
    match result.map_err(Into::into) {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(number) => format!("error {number}"),
            None => error.to_string(),
        },
    }
}
