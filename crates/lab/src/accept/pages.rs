//! The power fails under PostgreSQL and MariaDB, which trust that pages do not tear: [`crate::pages`], some cuts or
//! hundreds.

use anyhow::{Context as _, Result};

use super::context::{Context, Outcome};
use crate::mounter::Who;
use crate::pages::{self, Database, Plan};

/// PostgreSQL; in full size MariaDB, too. On the kernel's ext4 up to the first page that is torn.
pub fn run(context: &Context) -> Result<Outcome> {
    let databases: &[Database] =
        if context.full { &[Database::Postgres, Database::MariaDb] } else { &[Database::Postgres] };
    let is_kernel = context.mounter.who == Who::Kernel;
    let (seconds, cuts) = match (context.full, is_kernel) {
        (true, _) => (10, 300),
        (false, true) => (3, 200),
        (false, false) => (3, 10),
    };
    for database in databases {
        if let Some(why) = pages::unavailable(*database) {
            return Ok(Outcome::Skipped(format!("{database}: {why}")));
        }
        let plan = Plan {
            database: *database,
            mounter: context.mounter.clone(),
            seed: context.seed,
            seconds,
            cuts,
            start_every: if is_kernel { usize::MAX } else { 1 },
            until_bad: is_kernel,
        };
        let report = pages::in_memory(&plan).with_context(|| plan.again())?;
        println!("        {database}: {report}");
        pages::judge(&plan, &report).with_context(|| plan.again())?;
    }
    Ok(Outcome::Passed)
}
