//! From whole images in a log of ext4's to blocks that can go home.

use super::plan::Planned;
use crate::error::Error;
use crate::geometry::LogWindow;
use quire_device::Buf;
use quire_device::sync::Arc;
use quire_layout::BlockNo;
use quire_layout::jbd2::unescape;

/// An image as its home has it.
pub(super) fn load(window: &mut LogWindow<'_>, p: &Planned) -> Result<(BlockNo, Arc<Buf>), Error> {
    let mut image = Buf::copy_of(window.block(p.log)?);
    if p.escaped {
        unescape(&mut image);
    }
    Ok((p.home, Arc::new(image)))
}

/// Images, which are read in the order of the log and returned in that of their homes.
pub(super) fn load_all(window: &mut LogWindow<'_>, images: &[Planned]) -> Result<Vec<(BlockNo, Arc<Buf>)>, Error> {
    let mut order: Vec<&Planned> = images.iter().collect();
    order.sort_unstable_by_key(|p| p.log);
    let mut loaded = order.into_iter().map(|p| load(window, p)).collect::<Result<Vec<_>, _>>()?;
    loaded.sort_unstable_by_key(|(home, _)| *home);
    Ok(loaded)
}
