//! The nine tables and their first population (TPC-C, clauses 1.3 and 4.3.3.1).

use std::path::Path;

use anyhow::Result;
use rusqlite::{Connection, Transaction, params};

use super::draw::{Draw, Phase, last_name};
use super::scale::{DISTRICTS, Journal, Scale, open};

const SCHEMA: &str = "
create table warehouse (w_id integer primary key, w_name text, w_street_1 text, w_street_2 text, w_city text, w_state text, w_zip text,
    w_tax integer, w_ytd integer);
create table district (d_id integer, d_w_id integer, d_name text, d_street_1 text, d_street_2 text, d_city text, d_state text,
    d_zip text, d_tax integer, d_ytd integer, d_next_o_id integer, primary key (d_w_id, d_id));
create table customer (c_id integer, c_d_id integer, c_w_id integer, c_first text, c_middle text, c_last text, c_street_1 text,
    c_street_2 text, c_city text, c_state text, c_zip text, c_phone text, c_since integer, c_credit text, c_credit_lim integer,
    c_discount integer, c_balance integer, c_ytd_payment integer, c_payment_cnt integer, c_delivery_cnt integer, c_data text,
    primary key (c_w_id, c_d_id, c_id));
create index customer_name on customer (c_w_id, c_d_id, c_last, c_first);
create table history (h_c_id integer, h_c_d_id integer, h_c_w_id integer, h_d_id integer, h_w_id integer, h_date integer,
    h_amount integer, h_data text);
create table new_order (no_o_id integer, no_d_id integer, no_w_id integer, primary key (no_w_id, no_d_id, no_o_id));
create table orders (o_id integer, o_d_id integer, o_w_id integer, o_c_id integer, o_entry_d integer, o_carrier_id integer,
    o_ol_cnt integer, o_all_local integer, primary key (o_w_id, o_d_id, o_id));
create index orders_customer on orders (o_w_id, o_d_id, o_c_id, o_id);
create table order_line (ol_o_id integer, ol_d_id integer, ol_w_id integer, ol_number integer, ol_i_id integer,
    ol_supply_w_id integer, ol_delivery_d integer, ol_quantity integer, ol_amount integer, ol_dist_info text,
    primary key (ol_w_id, ol_d_id, ol_o_id, ol_number));
create table item (i_id integer primary key, i_im_id integer, i_name text, i_price integer, i_data text);
create table stock (s_i_id integer, s_w_id integer, s_quantity integer, s_dist_01 text, s_dist_02 text, s_dist_03 text,
    s_dist_04 text, s_dist_05 text, s_dist_06 text, s_dist_07 text, s_dist_08 text, s_dist_09 text, s_dist_10 text,
    s_ytd integer, s_order_cnt integer, s_remote_cnt integer, s_data text, primary key (s_w_id, s_i_id));
";

/// The date of the population, in seconds; a run's dates go on from there.
pub(super) const LOADED_AT: i64 = 1_000_000_000;

/// Makes the database and fills it.
pub fn load(db: &Path, journal: Journal, scale: Scale, seed: u64) -> Result<()> {
    let mut connection = open(db, journal, Some(scale.page))?;
    connection.execute_batch(SCHEMA)?;
    let mut draw = Draw::new(seed, Phase::Load);
    items(&mut connection, scale, &mut draw)?;
    for w in 1..=scale.warehouses {
        let transaction = connection.transaction()?;
        warehouse(&transaction, scale, w, &mut draw)?;
        transaction.commit()?;
    }
    if journal == Journal::Wal {
        connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
    }
    Ok(())
}

fn items(connection: &mut Connection, scale: Scale, draw: &mut Draw) -> Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("insert into item values (?, ?, ?, ?, ?)")?;
        for i in 1..=scale.items {
            let price = draw.within(100, 10_000);
            insert.execute(params![i, draw.within(1, 10_000), draw.text(14, 24), price, draw.data()])?;
        }
    }
    Ok(transaction.commit()?)
}

fn warehouse(to: &Transaction<'_>, scale: Scale, w: u32, draw: &mut Draw) -> Result<()> {
    let [street_1, street_2, city, state, zip] = draw.address();
    to.execute(
        "insert into warehouse values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![w, draw.text(6, 10), street_1, street_2, city, state, zip, draw.within(0, 2000), 30_000_000],
    )?;
    stock(to, scale, w, draw)?;
    // Each district's share of the warehouse's 300,000.00 (condition 1 of 3.3.2).
    for d in 1..=DISTRICTS {
        let [street_1, street_2, city, state, zip] = draw.address();
        to.execute(
            "insert into district values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                d,
                w,
                draw.text(6, 10),
                street_1,
                street_2,
                city,
                state,
                zip,
                draw.within(0, 2000),
                3_000_000,
                scale.customers + 1
            ],
        )?;
        customers(to, scale, w, d, draw)?;
        orders(to, scale, w, d, draw)?;
    }
    Ok(())
}

fn stock(to: &Transaction<'_>, scale: Scale, w: u32, draw: &mut Draw) -> Result<()> {
    let mut insert = to.prepare("insert into stock values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?)")?;
    for i in 1..=scale.items {
        let dist: [String; 10] = std::array::from_fn(|_| draw.text(24, 24));
        let [d1, d2, d3, d4, d5, d6, d7, d8, d9, d10] = &dist;
        insert.execute(params![i, w, draw.within(10, 100), d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, draw.data()])?;
    }
    Ok(())
}

fn customers(to: &Transaction<'_>, scale: Scale, w: u32, d: u32, draw: &mut Draw) -> Result<()> {
    let mut insert = to.prepare(
        "insert into customer values (?, ?, ?, ?, 'OE', ?, ?, ?, ?, ?, ?, ?, ?, ?, 5000000, ?, -1000, 1000, 1, 0, ?)",
    )?;
    let mut history = to.prepare("insert into history values (?, ?, ?, ?, ?, ?, 1000, ?)")?;
    for c in 1..=scale.customers {
        // Every name is there once; further customers share them unevenly.
        let last = if c <= 1000 { last_name(c - 1) } else { draw.last_name(scale.customers) };
        let [street_1, street_2, city, state, zip] = draw.address();
        let credit = if draw.percent(10) { "BC" } else { "GC" };
        insert.execute(params![
            c,
            d,
            w,
            draw.text(8, 16),
            last,
            street_1,
            street_2,
            city,
            state,
            zip,
            draw.digits(16),
            LOADED_AT,
            credit,
            draw.within(0, 5000),
            draw.text(300, 500)
        ])?;
        history.execute(params![c, d, w, d, w, LOADED_AT, draw.text(12, 24)])?;
    }
    Ok(())
}

fn orders(to: &Transaction<'_>, scale: Scale, w: u32, d: u32, draw: &mut Draw) -> Result<()> {
    let mut order = to.prepare("insert into orders values (?, ?, ?, ?, ?, ?, ?, 1)")?;
    let mut new = to.prepare("insert into new_order values (?, ?, ?)")?;
    let mut line = to.prepare("insert into order_line values (?, ?, ?, ?, ?, ?, ?, 5, ?, ?)")?;
    let first_new = scale.customers - scale.customers * 3 / 10 + 1;
    for (o, customer) in (1..).zip(draw.permutation(scale.customers)) {
        let (delivered, lines) = (o < first_new, draw.within(5, 15));
        let carrier = delivered.then(|| draw.within(1, 10));
        order.execute(params![o, d, w, customer, LOADED_AT, carrier, lines])?;
        for number in 1..=lines {
            let amount = if delivered { 0 } else { draw.within(1, 999_999) };
            let date = delivered.then_some(LOADED_AT);
            line.execute(params![o, d, w, number, draw.within(1, scale.items), w, date, amount, draw.text(24, 24)])?;
        }
        if !delivered {
            new.execute(params![o, d, w])?;
        }
    }
    Ok(())
}
