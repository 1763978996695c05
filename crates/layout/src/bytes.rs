//! Integers at offsets. Readers of a fixed-size record have checked its length once; an offset past the
//! end is then our own bug and panics as any slice index does. Decoders of variable records use `get`.

macro_rules! accessors {
    ($get:ident, $put:ident, $try:ident, $int:ty, $from:ident, $to:ident) => {
        #[must_use]
        pub fn $get(b: &[u8], at: usize) -> $int {
            const N: usize = size_of::<$int>();
            <$int>::$from(b[at..at + N].try_into().expect("slice of N bytes"))
        }

        pub fn $put(b: &mut [u8], at: usize, v: $int) {
            const N: usize = size_of::<$int>();
            b[at..at + N].copy_from_slice(&v.$to());
        }

        /// As the getter, but `None` where the bytes are not there.
        #[must_use]
        pub fn $try(b: &[u8], at: usize) -> Option<$int> {
            const N: usize = size_of::<$int>();
            Some(<$int>::$from(b.get(at..at.checked_add(N)?)?.try_into().ok()?))
        }
    };
}

accessors!(le16, put_le16, try_le16, u16, from_le_bytes, to_le_bytes);
accessors!(le32, put_le32, try_le32, u32, from_le_bytes, to_le_bytes);
accessors!(le64, put_le64, try_le64, u64, from_le_bytes, to_le_bytes);
accessors!(be16, put_be16, try_be16, u16, from_be_bytes, to_be_bytes);
accessors!(be32, put_be32, try_be32, u32, from_be_bytes, to_be_bytes);
accessors!(be64, put_be64, try_be64, u64, from_be_bytes, to_be_bytes);

/// A 64-bit value stored as two little-endian halves of 32 bits.
#[must_use]
pub fn le_split(b: &[u8], lo: usize, hi: usize) -> u64 {
    u64::from(le32(b, lo)) | u64::from(le32(b, hi)) << 32
}

/// Low 32 bits. The name says that the rest is dropped on purpose.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn lo32(v: u64) -> u32 {
    v as u32
}

/// High 32 bits.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn hi32(v: u64) -> u32 {
    (v >> 32) as u32
}

/// Low 16 bits.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn lo16(v: u32) -> u16 {
    v as u16
}

/// High 16 bits.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn hi16(v: u32) -> u16 {
    (v >> 16) as u16
}
