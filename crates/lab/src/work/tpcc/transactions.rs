//! The five transactions (TPC-C, clauses 2.4 to 2.8), each a transaction of SQLite, or each of their statements one.

use anyhow::{Context, Result};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::draw::Draw;
use super::load::LOADED_AT;
use super::scale::{DISTRICTS, Grain, Scale};

/// A transaction of the mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|kind| *kind == self).expect("all are there")
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Committed,
    RolledBack,
}

/// A customer that a transaction looks for.
#[derive(Debug)]
enum Wanted {
    Id(u32),
    Name(String),
}

/// One terminal: draws transactions and runs them.
#[derive(Debug)]
pub(super) struct Terminal {
    scale: Scale,
    grain: Grain,
    draw: Draw,
    /// The date of the next transaction: a second for each, so that a run depends on its seed alone.
    date: i64,
}

impl Terminal {
    pub(super) fn new(scale: Scale, grain: Grain, draw: Draw) -> Self {
        Self { scale, grain, draw, date: LOADED_AT }
    }

    /// The mix of 5.2.3: 45, 43, 4, 4 and 4 per cent.
    pub(super) fn next(&mut self) -> Kind {
        match self.draw.within(1, 100) {
            1..=45 => Kind::NewOrder,
            46..=88 => Kind::Payment,
            89..=92 => Kind::OrderStatus,
            93..=96 => Kind::Delivery,
            _ => Kind::StockLevel,
        }
    }

    pub(super) fn transaction(&mut self, connection: &mut Connection, kind: Kind) -> Result<Done> {
        self.date += 1;
        if self.grain == Grain::Statement {
            return self.on(connection, kind);
        }
        let behaviour = match kind {
            Kind::OrderStatus | Kind::StockLevel => TransactionBehavior::Deferred,
            Kind::NewOrder | Kind::Payment | Kind::Delivery => TransactionBehavior::Immediate,
        };
        let on = connection.transaction_with_behavior(behaviour)?;
        let done = self.on(&on, kind)?;
        match done {
            Done::Committed => on.commit()?,
            Done::RolledBack => on.rollback()?,
        }
        Ok(done)
    }

    fn on(&mut self, on: &Connection, kind: Kind) -> Result<Done> {
        let w = self.draw.within(1, self.scale.warehouses);
        let done = match kind {
            Kind::NewOrder => self.new_order(on, w),
            Kind::Payment => self.payment(on, w),
            Kind::OrderStatus => self.order_status(on, w),
            Kind::Delivery => self.delivery(on, w),
            Kind::StockLevel => self.stock_level(on, w),
        };
        done.with_context(|| format!("{kind:?}"))
    }

    fn district(&mut self) -> u32 {
        self.draw.within(1, DISTRICTS)
    }

    /// By last name in 60 % of all cases.
    fn wanted(&mut self) -> Wanted {
        if self.draw.percent(60) {
            Wanted::Name(self.draw.last_name(self.scale.customers))
        } else {
            Wanted::Id(self.draw.customer(self.scale.customers))
        }
    }

    fn new_order(&mut self, on: &Connection, w: u32) -> Result<Done> {
        let (d, c) = (self.district(), self.draw.customer(self.scale.customers));
        let lines = self.draw.within(5, 15);
        let missing = self.draw.percent(1);
        if missing && self.grain == Grain::Statement {
            // Nothing could be taken back.
            return Ok(Done::RolledBack);
        }
        let tax: i64 = one(on, "select w_tax from warehouse where w_id = ?", [w])?;
        let (district_tax, o): (i64, i64) = on
            .prepare_cached("select d_tax, d_next_o_id from district where d_w_id = ? and d_id = ?")?
            .query_row([w, d], |row| Ok((row.get(0)?, row.get(1)?)))?;
        exec(on, "update district set d_next_o_id = ? where d_w_id = ? and d_id = ?", params![o + 1, w, d])?;
        let discount: i64 =
            one(on, "select c_discount from customer where c_w_id = ? and c_d_id = ? and c_id = ?", [w, d, c])?;
        let orders: Vec<(u32, u32, u32)> =
            (0..lines).map(|_| (self.draw.item(self.scale.items), self.supplier(w), self.draw.within(1, 10))).collect();
        let local = orders.iter().all(|(_, supplier, _)| *supplier == w);
        exec(
            on,
            "insert into orders values (?, ?, ?, ?, ?, null, ?, ?)",
            params![o, d, w, c, self.date, lines, local],
        )?;
        exec(on, "insert into new_order values (?, ?, ?)", params![o, d, w])?;
        for (number, (item, supplier, quantity)) in (1..).zip(orders) {
            let item = if missing && number == lines { self.scale.items + 1 } else { item };
            let price: Option<i64> = on
                .prepare_cached("select i_price from item where i_id = ?")?
                .query_row([item], |row| row.get(0))
                .optional()?;
            let Some(price) = price else { return Ok(Done::RolledBack) };
            let info = take_from_stock(on, item, supplier, d, quantity, supplier != w)?;
            let amount =
                i64::from(quantity) * price * (10_000 + tax + district_tax) / 10_000 * (10_000 - discount) / 10_000;
            let line = "insert into order_line values (?, ?, ?, ?, ?, ?, null, ?, ?, ?)";
            exec(on, line, params![o, d, w, number, item, supplier, quantity, amount, info])?;
        }
        Ok(Done::Committed)
    }

    /// The warehouse that supplies a line: another one in 1 % of all cases, if there is another one.
    fn supplier(&mut self, w: u32) -> u32 {
        if self.scale.warehouses > 1 && self.draw.percent(1) { self.other(w) } else { w }
    }

    fn other(&mut self, w: u32) -> u32 {
        let other = self.draw.within(1, self.scale.warehouses - 1);
        if other >= w { other + 1 } else { other }
    }

    fn payment(&mut self, on: &Connection, w: u32) -> Result<Done> {
        let (d, amount) = (self.district(), i64::from(self.draw.within(100, 500_000)));
        let remote = self.scale.warehouses > 1 && self.draw.percent(15);
        let (cw, cd) = if remote { (self.other(w), self.district()) } else { (w, d) };
        let wanted = self.wanted();
        exec(on, "update warehouse set w_ytd = w_ytd + ? where w_id = ?", params![amount, w])?;
        exec(on, "update district set d_ytd = d_ytd + ? where d_w_id = ? and d_id = ?", params![amount, w, d])?;
        let name: String = one(on, "select w_name || '    ' from warehouse where w_id = ?", [w])?;
        let district: String = one(on, "select d_name from district where d_w_id = ? and d_id = ?", [w, d])?;
        let c = find(on, cw, cd, &wanted)?;
        exec(
            on,
            "update customer set c_balance = c_balance - ?1, c_ytd_payment = c_ytd_payment + ?1, c_payment_cnt = c_payment_cnt + 1
                where c_w_id = ?2 and c_d_id = ?3 and c_id = ?4",
            params![amount, cw, cd, c],
        )?;
        let credit: String =
            one(on, "select c_credit from customer where c_w_id = ? and c_d_id = ? and c_id = ?", [cw, cd, c])?;
        if credit == "BC" {
            let what = format!("{c} {cd} {cw} {d} {w} {amount}|");
            exec(
                on,
                "update customer set c_data = substr(? || c_data, 1, 500) where c_w_id = ? and c_d_id = ? and c_id = ?",
                params![what, cw, cd, c],
            )?;
        }
        let row = params![c, cd, cw, d, w, self.date, amount, name + &district];
        exec(on, "insert into history values (?, ?, ?, ?, ?, ?, ?, ?)", row)?;
        Ok(Done::Committed)
    }

    fn order_status(&mut self, on: &Connection, w: u32) -> Result<Done> {
        let (d, wanted) = (self.district(), self.wanted());
        let c = find(on, w, d, &wanted)?;
        let last: i64 =
            one(on, "select max(o_id) from orders where o_w_id = ? and o_d_id = ? and o_c_id = ?", [w, d, c])?;
        let mut lines = on.prepare_cached(
            "select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d from order_line
                where ol_w_id = ? and ol_d_id = ? and ol_o_id = ?",
        )?;
        let read: Vec<i64> =
            lines.query_map(params![w, d, last], |row| row.get(3))?.collect::<rusqlite::Result<_>>()?;
        anyhow::ensure!(!read.is_empty(), "order {last} of district {w}.{d} has no lines");
        Ok(Done::Committed)
    }

    /// All districts of a warehouse in one transaction, as the specification's deferred one may be run (2.7.2).
    fn delivery(&mut self, on: &Connection, w: u32) -> Result<Done> {
        let carrier = self.draw.within(1, 10);
        for d in 1..=DISTRICTS {
            let oldest: Option<i64> =
                one(on, "select min(no_o_id) from new_order where no_w_id = ? and no_d_id = ?", [w, d])?;
            let Some(o) = oldest else { continue };
            let key = params![w, d, o];
            exec(on, "delete from new_order where no_w_id = ? and no_d_id = ? and no_o_id = ?", key)?;
            let c: u32 = on
                .prepare_cached("select o_c_id from orders where o_w_id = ? and o_d_id = ? and o_id = ?")?
                .query_row(key, |row| row.get(0))?;
            exec(
                on,
                "update orders set o_carrier_id = ? where o_w_id = ? and o_d_id = ? and o_id = ?",
                params![carrier, w, d, o],
            )?;
            exec(
                on,
                "update order_line set ol_delivery_d = ? where ol_w_id = ? and ol_d_id = ? and ol_o_id = ?",
                params![self.date, w, d, o],
            )?;
            let total: i64 = on
                .prepare_cached(
                    "select sum(ol_amount) from order_line where ol_w_id = ? and ol_d_id = ? and ol_o_id = ?",
                )?
                .query_row(key, |row| row.get(0))?;
            exec(
                on,
                "update customer set c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1
                    where c_w_id = ? and c_d_id = ? and c_id = ?",
                params![total, w, d, c],
            )?;
        }
        Ok(Done::Committed)
    }

    fn stock_level(&mut self, on: &Connection, w: u32) -> Result<Done> {
        let (d, threshold) = (self.district(), self.draw.within(10, 20));
        let next: i64 = one(on, "select d_next_o_id from district where d_w_id = ? and d_id = ?", [w, d])?;
        on.prepare_cached(
            "select count(distinct s_i_id) from order_line join stock on s_w_id = ol_w_id and s_i_id = ol_i_id
                where ol_w_id = ? and ol_d_id = ? and ol_o_id >= ? and ol_o_id < ? and s_quantity < ?",
        )?
        .query_row(params![w, d, next - 20, next, threshold], |row| row.get::<_, i64>(0))?;
        Ok(Done::Committed)
    }
}

/// Takes `quantity` of an item from a warehouse's stock, and returns the district's information.
fn take_from_stock(on: &Connection, item: u32, w: u32, d: u32, quantity: u32, remote: bool) -> Result<String> {
    let (there, info): (i64, String) = on
        .prepare_cached(&format!("select s_quantity, s_dist_{d:02} from stock where s_w_id = ? and s_i_id = ?"))?
        .query_row([w, item], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let wanted = i64::from(quantity);
    let left = if there >= wanted + 10 { there - wanted } else { there - wanted + 91 };
    exec(
        on,
        "update stock set s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?
            where s_w_id = ? and s_i_id = ?",
        params![left, wanted, remote, w, item],
    )?;
    Ok(info)
}

/// A customer's number: of several with the same last name the one in the middle, by first name (2.5.2.2).
fn find(on: &Connection, w: u32, d: u32, wanted: &Wanted) -> Result<u32> {
    let name = match wanted {
        Wanted::Id(id) => return Ok(*id),
        Wanted::Name(name) => name,
    };
    let mut select =
        on.prepare_cached("select c_id from customer where c_w_id = ? and c_d_id = ? and c_last = ? order by c_first")?;
    let ids: Vec<u32> = select.query_map(params![w, d, name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    ids.get(ids.len().div_ceil(2).saturating_sub(1)).copied().with_context(|| format!("no customer {name} in {w}.{d}"))
}

fn one<T: rusqlite::types::FromSql, const N: usize>(on: &Connection, sql: &str, of: [u32; N]) -> Result<T> {
    Ok(on.prepare_cached(sql)?.query_row(rusqlite::params_from_iter(of), |row| row.get(0))?)
}

fn exec(on: &Connection, sql: &str, of: &[&dyn rusqlite::ToSql]) -> Result<()> {
    on.prepare_cached(sql)?.execute(of)?;
    Ok(())
}
