//! Values of options: sizes, modes, owners, times.

pub(crate) use crate::text::size;
use quire::{MAX_LABEL_BYTES, SetMetadata, Timestamp};

/// The name of a volume: the superblock has so much room for it.
pub(crate) fn label(text: &str) -> Result<String, String> {
    let n = text.len();
    if n > MAX_LABEL_BYTES {
        Err(format!("a label has at most {MAX_LABEL_BYTES} bytes, this one has {n}"))
    } else {
        Ok(text.to_owned())
    }
}

/// Adds an owner and a group that were given.
pub(crate) fn set_owner(set: SetMetadata, owner: Option<(Option<u32>, Option<u32>)>) -> SetMetadata {
    let (uid, gid) = owner.unwrap_or_default();
    let set = uid.map_or(set, |u| set.uid(u));
    gid.map_or(set, |g| set.gid(g))
}

/// `1.5G`, as `ls -h` writes sizes.
pub(crate) fn human(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P"];
    let unit = (0..units.len() - 1).find(|u| bytes >> (10 * (u + 1)) == 0).unwrap_or(units.len() - 1);
    let tenths = bytes.saturating_mul(10).div_ceil(1 << (10 * unit));
    if unit == 0 || tenths >= 100 {
        return format!("{}{}", bytes.div_ceil(1 << (10 * unit)), units[unit]);
    }
    format!("{}.{}{}", tenths / 10, tenths % 10, units[unit])
}

/// A user or group, as a number: the names of the host mean nothing in an image.
pub(crate) fn id(text: &str) -> Result<u32, String> {
    let bad = |_| format!("{text:?} is no number (names of the host mean nothing here)");
    match text.parse().map_err(bad)? {
        u32::MAX => Err(format!("{text} is no owner: the kernel means none by it")),
        id => Ok(id),
    }
}

/// `UID:GID`, `UID`, or `:GID`.
pub(crate) fn owner(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let given = |t: &str| if t.is_empty() { Ok(None) } else { id(t).map(Some) };
    match (given(user)?, given(group)?) {
        (None, None) => Err("UID:GID is expected".to_owned()),
        both => Ok(both),
    }
}

/// The bits set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// A change of permissions: octal, or as chmod(1) has it (`u+x,go-w`, `u+x-w`, `g=u`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ModeChange {
    /// A directory keeps the set-id bits that are not of `mentioned`.
    Set {
        bits: u32,
        mentioned: u32,
    },
    Clauses(Vec<Clause>),
}

/// One clause of a symbolic mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clause {
    /// The classes: bits of 0700, 0070, 0007.
    who: u32,
    how: char,
    /// rwx in each class, and set-id and sticky as asked.
    bits: u32,
    /// `g=u`: the place of the class whose bits these are before the change.
    copied: Option<u32>,
    /// `X`: execute only for directories and what somebody may execute.
    if_executable: bool,
    special: u32,
}

pub(crate) fn mode(text: &str) -> Result<ModeChange, String> {
    let bad = || format!("{text:?} is no mode: 0644 or u+x,go-w is expected");
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = u32::from_str_radix(text, 8).map_err(|_| bad())?;
        // Of more than four digits each is meant.
        let mentioned = if text.len() > 4 { SET_ID } else { bits };
        return if bits <= 0o7777 { Ok(ModeChange::Set { bits, mentioned }) } else { Err(bad()) };
    }
    let clauses: Option<Vec<_>> = text.split(',').map(clauses).collect();
    clauses.map(|c| ModeChange::Clauses(c.concat())).ok_or_else(bad)
}

/// The clauses of classes with one or more changes: `u+x-w`.
fn clauses(text: &str) -> Option<Vec<Clause>> {
    const HOW: [char; 3] = ['+', '-', '='];
    let (classes, mut rest) = text.split_at(text.find(HOW)?);
    let who = classes.chars().try_fold(0, |who, c| {
        Some(
            who | match c {
                'u' => 0o700,
                'g' => 0o070,
                'o' => 0o007,
                'a' => 0o777,
                _ => return None,
            },
        )
    })?;
    let who = if classes.is_empty() { 0o777 } else { who };
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (how, behind) = rest.split_at(1);
        let (change, next) = behind.split_at(behind.find(HOW).unwrap_or(behind.len()));
        found.push(clause(who, how.chars().next()?, change)?);
        rest = next;
    }
    Some(found)
}

fn clause(who: u32, how: char, change: &str) -> Option<Clause> {
    let mut clause = Clause { who, how, bits: 0, copied: None, if_executable: false, special: 0 };
    clause.copied = match change {
        "u" => Some(6),
        "g" => Some(3),
        "o" => Some(0),
        _ => None,
    };
    for c in change.chars().filter(|_| clause.copied.is_none()) {
        match c {
            'r' => clause.bits |= 0o444,
            'w' => clause.bits |= 0o222,
            'x' => clause.bits |= 0o111,
            'X' => clause.if_executable = true,
            's' => clause.special |= (who & 0o100) << 5 | (who & 0o010) << 7,
            't' => clause.special |= 0o1000,
            _ => return None,
        }
    }
    Some(clause)
}

impl ModeChange {
    /// The permissions after the change. As with chmod(1), a directory keeps set-user-id and set-group-id unless the
    /// change names them.
    pub(crate) fn apply(&self, old: u32, is_dir: bool) -> u32 {
        let kept = if is_dir { old & SET_ID } else { 0 };
        let clauses = match self {
            ModeChange::Set { bits, mentioned } => return bits | kept & !mentioned,
            ModeChange::Clauses(c) => c,
        };
        clauses.iter().fold(old & 0o7777, |now, c| {
            let x = if c.if_executable && (is_dir || now & 0o111 != 0) { 0o111 } else { 0 };
            let copied = c.copied.map_or(0, |place| (now >> place & 7) * 0o111);
            let bits = ((c.bits | x | copied) & c.who) | c.special;
            match c.how {
                '+' => now | bits,
                '-' => now & !bits,
                _ => {
                    let set_id = (c.who & 0o100) << 5 | (c.who & 0o010) << 7;
                    let set_id = if is_dir { set_id & c.special } else { set_id };
                    (now & !(c.who | set_id)) | bits
                }
            }
        })
    }
}

/// Seconds since 1970, with an optional fraction: `@1700000000.5` or without the `@`.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    let bad = || format!("{text:?} is no time: seconds since 1970 are expected, as of `date +%s.%N`");
    let digits = text.strip_prefix('@').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let secs: i64 = whole.parse().map_err(|_| bad())?;
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let nanos = format!("{fraction:0<9}").parse().map_err(|_| bad())?;
    Ok(Timestamp::new(secs, nanos))
}

/// A UUID as 32 hexadecimal digits, with or without dashes.
pub(crate) fn uuid(text: &str) -> Result<[u8; 16], String> {
    quire::uuid_from_text(text).ok_or_else(|| format!("{text:?} is no UUID"))
}

/// A time as ISO 8601 in UTC, to the second.
pub(crate) fn iso(t: Timestamp) -> String {
    // Days of the proleptic Gregorian calendar, counted in eras of 400 years from March (Howard Hinnant's algorithm).
    let (days, rest) = (t.secs.div_euclid(86_400), t.secs.rem_euclid(86_400));
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A time as ISO 8601 in UTC, with nanoseconds.
pub(crate) fn iso_nanos(t: Timestamp) -> String {
    format!("{}.{:09}Z", iso(t).trim_end_matches('Z'), t.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_and_written() {
        assert_eq!((size("12"), size("2g"), size("3K")), (Ok(12), Ok(2 << 30), Ok(3072)));
        assert!(size("x").is_err() && size("").is_err() && size("99999999999T").is_err());
        assert_eq!(size("8388607T"), Ok(8_388_607 << 40));
        assert!(size("8388608T").is_err() && size("16777215T").is_err() && size("18446744073709551615").is_err());
        assert_eq!([0, 1023, 1024, 1536, 10 << 20].map(human), ["0", "1023", "1.0K", "1.5K", "10M"]);
        assert_eq!(time("@1.25"), Ok(Timestamp::new(1, 250_000_000)));
        assert_eq!(iso(Timestamp::new(951_782_400, 0)), "2000-02-29T00:00:00Z");
        assert_eq!(iso(Timestamp::new(-1, 0)), "1969-12-31T23:59:59Z");
        assert_eq!(iso_nanos(Timestamp::new(-1, 5)), "1969-12-31T23:59:59.000000005Z");
    }

    #[test]
    fn modes_are_those_of_chmod() {
        let apply = |m: &str, old, dir| mode(m).unwrap().apply(old, dir);
        assert_eq!(apply("4755", 0, false), 0o4755);
        assert_eq!(apply("u+x,go-w", 0o666, false), 0o744);
        assert_eq!(apply("a=rX", 0o700, false), 0o555);
        assert_eq!(apply("a=rX", 0o600, false), 0o444);
        assert_eq!(apply("+X", 0o600, true), 0o711);
        assert_eq!(apply("u+s,+t", 0o755, false), 0o5755);
        assert_eq!(apply("g+s", 0o755, false), 0o2755);
        assert_eq!(apply("u=rwx", 0o4644, false), 0o744);
        assert_eq!(apply("g=u", 0o4750, false), 0o4770);
        assert_eq!(apply("o=g-w", 0o660, false), 0o664);
        assert_eq!(apply("u+x-w,go+u", 0o640, false), 0o555);
        assert_eq!(apply("u=,g-o", 0o675, false), 0o025);
        assert_eq!(apply("g=o+w=", 0o075, false), 0o005);
        assert!(mode("g=ur").is_err() && mode("g=uo").is_err() && mode("u+x,").is_err() && mode("").is_err());
        assert!(mode("u").is_err() && mode("9").is_err() && mode("u+q").is_err() && mode("77777").is_err());
    }

    #[test]
    fn directories_keep_set_id_unless_a_mode_names_it() {
        let apply = |m: &str, dir| mode(m).unwrap().apply(0o6775, dir);
        for (change, of_dir, of_file) in [
            ("755", 0o6755, 0o755),
            ("0755", 0o6755, 0o755),
            ("00755", 0o755, 0o755),
            ("2755", 0o6755, 0o2755),
            ("g=rx", 0o6755, 0o4755),
            ("u=rwxs", 0o6775, 0o6775),
            ("g-s", 0o4775, 0o4775),
            ("a=", 0o6000, 0),
        ] {
            assert_eq!((apply(change, true), apply(change, false)), (of_dir, of_file), "{change}");
        }
    }

    #[test]
    fn owners_are_numbers() {
        assert_eq!(owner("1:2"), Ok((Some(1), Some(2))));
        assert_eq!(owner(":2"), Ok((None, Some(2))));
        assert_eq!(owner("7"), Ok((Some(7), None)));
        assert!(owner("root").is_err() && owner(":").is_err());
        for none in ["4294967295", "4294967295:0", "0:4294967295", ":4294967295"] {
            assert!(owner(none).unwrap_err().contains("is no owner"), "{none}");
        }
    }
}
