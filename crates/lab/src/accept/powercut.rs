//! The power fails under applications on a mount: [`crate::powercut`], some seconds of it, or some minutes.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::context::{Context, Outcome};
use crate::mounter::Who;
use crate::powercut::{self, Plan};

/// One recording; all of its flushes when there is time for them.
pub fn run(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("only Quire can be mounted on a device that records".to_owned()));
    }
    let (work, check) = if context.full { (0.6, 240) } else { (0.3, 8) };
    let plan = Plan {
        options: context.mounter.options.clone(),
        seed: context.seed,
        work: Duration::from_secs_f64(work),
        check: Duration::from_secs(check),
    };
    let report = powercut::run(&context.dir, &plan).with_context(|| plan.again())?;
    println!("        {report}");
    Ok(Outcome::Passed)
}
