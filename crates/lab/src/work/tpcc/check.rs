//! The consistency conditions that must hold after any number of committed transactions (TPC-C, clause 3.3.2).

use std::path::Path;

use anyhow::{Result, ensure};
use rusqlite::Connection;

/// A condition, and the query that counts what breaks it.
const CONDITIONS: [(&str, &str); 6] = [
    (
        "condition 1 (w_ytd is the sum of d_ytd)",
        "select count(*) from warehouse where w_ytd != (select sum(d_ytd) from district where d_w_id = w_id)",
    ),
    (
        "condition 2 (d_next_o_id follows the last order)",
        "select count(*) from district where d_next_o_id - 1 != (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id)",
    ),
    (
        "condition 3 (new orders have no gaps)",
        "select count(*) from (select max(no_o_id) - min(no_o_id) + 1 as span, count(*) as n from new_order group by no_w_id, no_d_id)
            where span != n",
    ),
    (
        "condition 4 (o_ol_cnt sums to the lines)",
        "select count(*) from district d where (select sum(o_ol_cnt) from orders where o_w_id = d_w_id and o_d_id = d.d_id) !=
            (select count(*) from order_line where ol_w_id = d_w_id and ol_d_id = d.d_id)",
    ),
    (
        "condition 5 (an order without a carrier is new)",
        "select count(*) from orders where (o_carrier_id is null) !=
            exists (select 1 from new_order where no_w_id = o_w_id and no_d_id = o_d_id and no_o_id = o_id)",
    ),
    (
        "condition 8 (w_ytd is what the history says)",
        "select count(*) from warehouse where w_ytd - 30000000 !=
            (select sum(h_amount) from history where h_w_id = w_id) -
            (select count(*) * 1000 from customer where c_w_id = w_id)",
    ),
];

/// Checks a database; it may have been recovered after a crash.
pub fn check(db: &Path) -> Result<()> {
    let connection = Connection::open(db)?;
    let integrity: String = connection.query_row("pragma integrity_check", [], |row| row.get(0))?;
    ensure!(integrity == "ok", "pragma integrity_check says: {integrity}");
    for (name, sql) in CONDITIONS {
        let wrong: u64 = connection.query_row(sql, [], |row| row.get(0))?;
        ensure!(wrong == 0, "{name} does not hold in {wrong} places");
    }
    Ok(())
}
