//! One damaged image: which base, which bytes are changed, and whether checksums are mended afterwards.

use super::base::Base;
use quire_testkit::Image;
use std::fmt;
use std::str::FromStr;

/// Bytes that are put over those of the base image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// Byte of the image.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// A damaged image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// [`Base::name`].
    pub base: String,
    pub edits: Vec<Edit>,
    /// Checksums of the places that were changed are made right.
    pub seal: bool,
}

impl Case {
    /// The damaged image. Edits outside of the image are cut off.
    #[must_use]
    pub fn image(&self, base: &Base) -> Image {
        let mut image = base.image.clone();
        for e in &self.edits {
            let room = usize::try_from(image.size().saturating_sub(e.at)).unwrap_or(usize::MAX);
            image.write(e.at.min(image.size()), &e.bytes[..e.bytes.len().min(room)]);
        }
        if self.seal {
            base.seal(&mut image, &self.touched(base));
        }
        image
    }

    /// Places that the edits change.
    #[must_use]
    pub fn touched(&self, base: &Base) -> Vec<usize> {
        let hit = |p: &super::Place| self.edits.iter().any(|e| e.at < p.end() && p.at < e.at + e.bytes.len() as u64);
        (0..base.places.len()).filter(|i| hit(&base.places[*i])).collect()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.base)?;
        for (i, e) in self.edits.iter().enumerate() {
            write!(f, "{}{}=", if i > 0 { "," } else { "" }, e.at)?;
            e.bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        }
        write!(f, "{}", if self.seal { ":seal" } else { ":raw" })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let bad = || format!("not a case: {s} (base:offset=hex,...:seal or :raw)");
        let [base, edits, how] = s.trim().split(':').collect::<Vec<_>>()[..] else { return Err(bad()) };
        let edit = |e: &str| -> Option<Edit> {
            let (at, hex) = e.split_once('=')?;
            let byte = |i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok();
            let bytes = (0..hex.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
            Some(Edit { at: at.parse().ok()?, bytes })
        };
        let edits = edits.split(',').filter(|e| !e.is_empty()).map(edit).collect::<Option<_>>().ok_or_else(bad)?;
        let seal = match how {
            "seal" => true,
            "raw" => false,
            _ => return Err(bad()),
        };
        Ok(Case { base: base.to_owned(), edits, seal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_prints_and_parses() {
        let edits = vec![Edit { at: 1080, bytes: vec![0, 0xff] }, Edit { at: 7, bytes: vec![3] }];
        let case = Case { base: "ext4".into(), edits, seal: true };
        assert_eq!(case.to_string(), "ext4:1080=00ff,7=03:seal");
        assert_eq!(case.to_string().parse(), Ok(case));
        assert!("ext4:1=0:raw".parse::<Case>().is_err() && "ext4:1=00".parse::<Case>().is_err());
    }
}
