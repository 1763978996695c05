//! Values of options: numbers, sizes, names, devices. An error names the whole option.

use super::{OptionError, bad};
use crate::sandbox::SandboxChoice;
use crate::transport_choice::TransportChoice;
use crate::updates::AtomicWrites;
use quire_device::nvram::NvramMap;
use quire_layout::superblock::OnError;
use std::path::PathBuf;

/// A value of one of the four choices, or a profile.
pub(super) fn choice<T: std::str::FromStr<Err = quire_fs::UnknownValue>>(
    option: &str,
    value: &str,
) -> Result<T, OptionError> {
    value.parse().map_err(|e: quire_fs::UnknownValue| bad(option, e.to_string()))
}

pub(super) fn on_error(option: &str, value: &str) -> Result<OnError, OptionError> {
    Ok(match value {
        "continue" => OnError::Continue,
        "remount-ro" => OnError::RemountReadOnly,
        "panic" => OnError::Panic,
        _ => return Err(bad(option, "continue, remount-ro or panic is expected")),
    })
}

/// True for `abort`.
pub(super) fn data_error(option: &str, value: &str) -> Result<bool, OptionError> {
    match value {
        "abort" => Ok(true),
        "ignore" => Ok(false),
        _ => Err(bad(option, "abort or ignore is expected")),
    }
}

/// True for `host`.
pub(super) fn tunes_host(option: &str, value: &str) -> Result<bool, OptionError> {
    match value {
        "host" => Ok(true),
        "none" => Ok(false),
        _ => Err(bad(option, "host or none is expected")),
    }
}

pub(super) fn transport(option: &str, value: &str) -> Result<TransportChoice, OptionError> {
    match value {
        "auto" => Ok(TransportChoice::Auto),
        "dev" => Ok(TransportChoice::Dev),
        "uring" => Ok(TransportChoice::Uring),
        _ => Err(bad(option, "auto, dev or uring is expected")),
    }
}

pub(super) fn sandbox(option: &str, value: &str) -> Result<SandboxChoice, OptionError> {
    match value {
        "auto" => Ok(SandboxChoice::Auto),
        "on" => Ok(SandboxChoice::On),
        "off" => Ok(SandboxChoice::Off),
        _ => Err(bad(option, "auto, on or off is expected")),
    }
}

pub(super) fn number(option: &str, value: &str) -> Result<u32, OptionError> {
    value.parse().map_err(|_| {
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        bad(option, if digits { "the number is too large" } else { "a number is expected" })
    })
}

/// A number of bytes: plain, or with K, M, G or T (KiB, MiB, ...).
pub(super) fn bytes(option: &str, value: &str) -> Result<u64, OptionError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match value[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad(option, "a size such as 64M is expected")),
    };
    let n: u64 = digits.parse().map_err(|_| bad(option, "a size such as 64M is expected"))?;
    n.checked_mul(1 << shift).ok_or_else(|| bad(option, "the size is too large"))
}

pub(super) fn nvram_size(option: &str, value: &str) -> Result<u64, OptionError> {
    let n = bytes(option, value)?;
    if n < NvramMap::MIN { Err(bad(option, "at least 1M is needed")) } else { Ok(n) }
}

pub(super) fn atomic_writes(option: &str, value: &str) -> Result<AtomicWrites, OptionError> {
    match value {
        "off" => Ok(AtomicWrites::Off),
        "asked" => Ok(AtomicWrites::Asked),
        "all" => Ok(AtomicWrites::All),
        _ => Err(bad(option, "off, asked or all is expected")),
    }
}

/// The least memory with which the largest operations still fit.
const MIN_CACHE: u64 = 4 << 20;

pub(super) fn cache_size(option: &str, value: &str) -> Result<u64, OptionError> {
    let n = bytes(option, value)?;
    if n < MIN_CACHE { Err(bad(option, "at least 4M is needed")) } else { Ok(n) }
}

/// Workers that read at once: from one up to as many as CPUs are planned for.
pub(super) fn readers(option: &str, value: &str) -> Result<usize, OptionError> {
    match value.parse() {
        Ok(n) if (1..=256).contains(&n) => Ok(n),
        _ => Err(bad(option, "a number from 1 to 256 is expected")),
    }
}

/// The journal's device: a path, or ext4's device number (hexadecimal or decimal, `major << 8 | minor`).
pub(super) fn journal(name: &str, option: &str, value: &str) -> Result<PathBuf, OptionError> {
    if name == "journal_path" {
        return Ok(value.into());
    }
    let number = match value.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => value.parse(),
    };
    let n = number.map_err(|_| bad(option, "a device number is expected; for a path use journal_path="))?;
    let (major, minor) = crate::wire::reply::decode_device(n);
    Ok(format!("/dev/block/{major}:{minor}").into())
}
