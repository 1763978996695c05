//! A figure as SVG, by plotters. Colours are placeholders that the page's style sheet names, so that one drawing serves
//! light and dark; text is left to the browser's fonts.
//!
//! *Guarantees*: no two series of a figure look alike (`Look`); names of places do not overlap.

use anyhow::{Result, anyhow, ensure};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::escape::escaped;
use crate::results::{Figure, Shape, shown};

/// How large it is drawn, in CSS pixels: beside another on a screen, or alone on a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Wide,
    Narrow,
}

impl Width {
    /// Of the drawing of a figure whose names of places stand in so many pixels.
    const fn size(self, names: u32) -> (u32, u32) {
        match self {
            Width::Wide => (620, 310 + names),
            Width::Narrow => (350, 270 + names),
        }
    }

    /// The class of the style sheet that shows it.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Width::Wide => "wide",
            Width::Narrow => "narrow",
        }
    }
}

/// Colours of series in the style sheet.
pub(super) const COLOURS: usize = 8;
const INK: RGBColor = RGBColor(1, 2, 3);
const GRID: RGBColor = RGBColor(1, 2, 4);
const PAPER: RGBColor = RGBColor(1, 2, 5);
const CARD: RGBColor = RGBColor(1, 2, 6);

/// How a series is told from the others: by its colour, and the ninth and later ones by stripes, too (dashes and hollow
/// points in a figure of lines).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: usize,
    pub(super) is_striped: bool,
}

impl Look {
    /// Series of a figure that can be told apart.
    const MOST: usize = 2 * COLOURS;

    /// Of the `n`-th series.
    pub(super) const fn of(n: usize) -> Self {
        Look { colour: n % COLOURS, is_striped: n >= COLOURS }
    }

    fn ink(self) -> RGBColor {
        placeholder(self.colour)
    }
}

fn placeholder(colour: usize) -> RGBColor {
    RGBColor(1, 3, u8::try_from(colour).expect("a few colours"))
}

/// The y axis: from `low` to `high`, linear or logarithmic.
#[derive(Clone)]
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn of(figure: &Figure) -> Self {
        let of_series = figure.series.iter().flat_map(|s| s.points.iter().flatten());
        let values: Vec<f64> = of_series
            .flat_map(|p| [p.value + p.deviation.unwrap_or(0.0), p.value])
            .chain(figure.printed.iter().map(|p| p.value))
            .collect();
        let high = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        if !figure.log || !positive.is_finite() {
            return Scale { low: 0.0, high: if high > 0.0 { high * 1.08 } else { 1.0 }, log: false };
        }
        // Whole decades; bars of the smallest values are still seen.
        let decade = |v: f64| 10f64.powf(v.log10().floor());
        let low = decade(positive * 0.7);
        Scale { low, high: (high * 1.3).max(low * 10.0), log: true }
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let rough = self.high / 5.0;
            let unit = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|n| n * unit).find(|s| *s >= rough).unwrap_or(unit * 10.0);
            return (0..=6).map(|n| f64::from(n) * step).take_while(|t| *t <= self.high).collect();
        }
        let (first, last) = (self.low.log10().round(), self.high.log10().floor());
        let every = ((last - first) / 6.0).ceil().max(1.0);
        let ticks = (0..8).map(|n| 10f64.powf(first + f64::from(n) * every));
        ticks.take_while(|t| *t <= self.high).collect()
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = |v: f64| if self.log { v.max(self.low).log10() } else { v };
        let share = (place(*value) - place(self.low)) / (place(self.high) - place(self.low));
        let (from, to) = (f64::from(limit.0), f64::from(limit.1));
        #[expect(clippy::cast_possible_truncation, reason = "within the drawing")]
        let at = (from + share.clamp(0.0, 1.0) * (to - from)).round() as i32;
        at
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        tick(*value)
    }
}

/// A tick's label: as short as it can be.
fn tick(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{} M", value / 1e6),
        v if v >= 1e4 => format!("{} k", value / 1e3),
        v if v > 0.0 && v < 1e-3 => format!("{value:e}"),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

type Area<'b> = DrawingArea<SVGBackend<'b>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Scale>>;

/// Draws it.
///
/// # Errors
/// plotters refuses, or there are more series than can be told apart.
pub fn draw(figure: &Figure, width: Width) -> Result<String> {
    let count = figure.series.len();
    ensure!(count <= Look::MOST, "{}: {count} series, {} can be told apart", figure.id, Look::MOST);
    let mut svg = String::new();
    drawn(figure, width, &mut svg).map_err(|e| anyhow!("{}: {e}", figure.id))?;
    Ok(styled(&svg, figure, width))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Pixels of a letter of a name, on average.
const LETTER: usize = 6;
/// Pixels of names that stand beside each other.
const LINE: u32 = 20;

fn letters<'a>(names: impl IntoIterator<Item = &'a String>) -> usize {
    names.into_iter().map(|name| name.chars().count()).max().unwrap_or(0)
}

/// Whether names of places have no space beside each other, and stand upright.
fn is_upright(figure: &Figure, width: Width) -> bool {
    let (all, _) = width.size(LINE);
    letters(&figure.places) * LETTER > (all as usize - 60) / figure.places.len().max(1)
}

/// Pixels in which they stand.
fn height_of_names(figure: &Figure, width: Width) -> u32 {
    let upright = || u32::try_from(letters(&figure.places) * LETTER + 8).unwrap_or(LINE);
    if is_upright(figure, width) { upright() } else { LINE }
}

fn drawn(figure: &Figure, width: Width, svg: &mut String) -> Drawn {
    let scale = Scale::of(figure);
    let names = height_of_names(figure, width);
    let area = SVGBackend::with_string(svg, width.size(names)).into_drawing_area();
    let font = ("sans-serif", 12).into_font();
    let labels = scale.ticks().iter().map(|t| tick(*t).len()).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(22)
        .margin_right(8)
        .margin_bottom(2)
        .margin_left(2)
        .x_label_area_size(names + 22)
        .y_label_area_size(16 + 7 * u32::try_from(labels)?)
        .build_cartesian_2d(0f64..f64::from(u32::try_from(figure.places.len())?), scale.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .y_label_style(font.clone().color(&INK))
        .draw()?;
    let (w, h) = width.size(names);
    let (w, h) = (i32::try_from(w)?, i32::try_from(h)?);
    let below = TextStyle::from(font.clone()).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new(figure.y.clone(), (4, 4), TextStyle::from(font.clone()).color(&INK)))?;
    area.draw(&Text::new(figure.x.clone(), (w / 2, h - 16), below.clone()))?;
    let upright = TextStyle::from(font.transform(FontTransform::Rotate270)).color(&INK);
    let upright = upright.pos(Pos::new(HPos::Right, VPos::Center));
    let style = if is_upright(figure, width) { upright } else { below };
    for (n, place) in figure.places.iter().enumerate() {
        let (x, axis) = chart.backend_coord(&(at(n) + 0.5, scale.low));
        area.draw(&Text::new(place.clone(), (x, axis + 7), style.clone()))?;
    }
    match figure.shape {
        Shape::Bars => bars(&mut chart, &area, figure, &scale)?,
        Shape::Lines => lines(&mut chart, figure)?,
    }
    marks(&mut chart, figure)?;
    area.present()?;
    Ok(())
}

fn at(n: usize) -> f64 {
    crate::stats::float(n as u64)
}

/// Where a series' bar or point is between `place` and the next.
fn middle(figure: &Figure, place: usize, series: usize) -> (f64, f64) {
    match figure.shape {
        Shape::Lines => (at(place) + 0.5, 0.04),
        Shape::Bars => {
            let width = 0.84 / at(figure.series.len());
            (at(place) + 0.08 + width * (at(series) + 0.5), width * 0.46)
        }
    }
}

/// Pixels from one stripe of a bar to the next.
const STRIPES: i32 = 6;

fn bars(chart: &mut Chart<'_, '_>, area: &Area<'_>, figure: &Figure, scale: &Scale) -> Drawn {
    for (n, s) in figure.series.iter().enumerate() {
        let look = Look::of(n);
        for (place, point) in s.points.iter().enumerate() {
            let Some(p) = point else { continue };
            let (x, half) = middle(figure, place, n);
            let corners = [(x - half, scale.low), (x + half, p.value)];
            chart.draw_series([Rectangle::new(corners, look.ink().filled())])?;
            if look.is_striped {
                let [(left, bottom), (right, top)] = corners.map(|corner| chart.backend_coord(&corner));
                for y in (top + STRIPES / 2..bottom).step_by(usize::try_from(STRIPES)?) {
                    area.draw(&PathElement::new(vec![(left, y), (right, y)], CARD.stroke_width(2)))?;
                }
            }
        }
    }
    spread(chart, figure)
}

fn lines(chart: &mut Chart<'_, '_>, figure: &Figure) -> Drawn {
    for (n, s) in figure.series.iter().enumerate() {
        let look = Look::of(n);
        let points =
            s.points.iter().enumerate().filter_map(|(place, p)| Some((middle(figure, place, n).0, (*p)?.value)));
        let points: Vec<(f64, f64)> = points.collect();
        let stroke = look.ink().stroke_width(2);
        if look.is_striped {
            chart.draw_series([plotters::element::DashedPathElement::new(points.clone(), 5, 4, stroke)])?;
        } else {
            chart.draw_series([PathElement::new(points.clone(), stroke)])?;
        }
        chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, look.ink().filled())))?;
        if look.is_striped {
            chart.draw_series(points.into_iter().map(|p| Circle::new(p, 1, CARD.filled())))?;
        }
    }
    spread(chart, figure)
}

/// One standard deviation to both sides.
fn spread(chart: &mut Chart<'_, '_>, figure: &Figure) -> Drawn {
    for (n, s) in figure.series.iter().enumerate() {
        for (place, point) in s.points.iter().enumerate() {
            let Some((p, d)) = point.and_then(|p| Some((p, p.deviation?))) else { continue };
            let (x, half) = middle(figure, place, n);
            let (low, high) = (p.value - d, p.value + d);
            let whisker = |y| PathElement::new(vec![(x - half / 2.0, y), (x + half / 2.0, y)], INK.stroke_width(1));
            chart.draw_series([whisker(low), whisker(high)])?;
            chart.draw_series([PathElement::new(vec![(x, low), (x, high)], INK.stroke_width(1))])?;
        }
    }
    Ok(())
}

/// The paper's numbers: a line across the bar with its value above.
fn marks(chart: &mut Chart<'_, '_>, figure: &Figure) -> Drawn {
    for p in &figure.printed {
        let place = figure.places.iter().position(|x| *x == p.x);
        let series = figure.series.iter().position(|s| s.name == p.series);
        let (Some(place), Some(series)) = (place, series) else { continue };
        let (x, half) = middle(figure, place, series);
        let half = half.max(0.05) * 1.25;
        chart.draw_series([PathElement::new(vec![(x - half, p.value), (x + half, p.value)], PAPER.stroke_width(3))])?;
        if figure.printed.len() <= 8 {
            let style = TextStyle::from(("sans-serif", 11).into_font()).color(&PAPER);
            let above = style.pos(Pos::new(HPos::Center, VPos::Bottom));
            chart.draw_series([EmptyElement::at((x, p.value)) + Text::new(shown(p.value), (0, -4), above)])?;
        }
    }
    Ok(())
}

/// Names colours by the page's variables, and the drawing by its class.
fn styled(svg: &str, figure: &Figure, width: Width) -> String {
    let hex = |c: RGBColor| format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2);
    let mut svg = svg.replace(&hex(INK), "var(--ink)").replace(&hex(GRID), "var(--grid)");
    svg = svg.replace(&hex(PAPER), "var(--paper)").replace(&hex(CARD), "var(--card)");
    for n in 0..COLOURS {
        svg = svg.replace(&hex(placeholder(n)), &format!("var(--s{n})"));
    }
    let (w, h) = width.size(height_of_names(figure, width));
    let title = escaped(&format!("{}: {}", figure.of, figure.title));
    let head = format!(r#"<svg class="{}" viewBox="0 0 {w} {h}" role="img" aria-label="{title}""#, width.class());
    let rest = svg.split_once("<svg").map_or("", |(_, rest)| rest);
    let body = rest.split_once('>').map_or("", |(_, body)| body);
    format!(r#"{head} xmlns="http://www.w3.org/2000/svg">{body}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(shape: Shape, log: bool) -> Figure {
        let mut f = Figure { shape, log, ..Figure::bars("f", "figure 1", "a < b", "size", "MB") }.of_series(["a", "b"]);
        f.place("1", [1.0, f64::NAN]);
        f.place("2", [30.0, 0.02]);
        f.printed("2", "a", 27.0);
        f
    }

    #[test]
    fn every_point_is_drawn_in_the_colour_of_its_series_and_the_papers_in_its_own() {
        for log in [false, true] {
            let bars = draw(&figure(Shape::Bars, log), Width::Wide).unwrap();
            assert_eq!((bars.matches("var(--s0)").count(), bars.matches("var(--s1)").count()), (2, 1), "{bars}");
            assert!(bars.contains("27.0") && bars.contains("var(--paper)") && bars.contains("a &lt; b"), "{bars}");
            assert!(!bars.contains("#01"), "a colour has no name: {bars}");
        }
        let lines = draw(&figure(Shape::Lines, false), Width::Narrow).unwrap();
        assert_eq!(lines.matches("<circle").count(), 3, "{lines}");
    }

    #[test]
    fn series_beyond_the_colours_are_striped_and_more_than_can_be_told_apart_are_refused() {
        let of = |count: usize, shape| {
            let mut figure = Figure { shape, ..Figure::bars("f", "", "", "x", "y") }.of_series(0..count);
            figure.place("1", vec![5.0; count]);
            figure.place("2", vec![6.0; count]);
            draw(&figure, Width::Wide)
        };
        for shape in [Shape::Bars, Shape::Lines] {
            assert!(!of(COLOURS, shape).unwrap().contains("var(--card)"), "stripes without need");
            assert!(of(COLOURS + 1, shape).unwrap().contains("var(--card)"), "the ninth looks as the first");
            assert!(of(Look::MOST, shape).is_ok() && of(Look::MOST + 1, shape).is_err());
        }
        let looks: Vec<Look> = (0..Look::MOST).map(Look::of).collect();
        assert!(looks.iter().enumerate().all(|(n, look)| !looks[..n].contains(look)), "{looks:?}");
    }

    #[test]
    fn names_of_places_stand_upright_where_they_have_no_space_beside_each_other() {
        let of = |places: usize, width| {
            let mut figure = Figure::bars("f", "", "", "mount", "y").of_series(["a"]);
            (0..places).for_each(|n| figure.place(format!("kernel fast_{n}"), [1.0]));
            draw(&figure, width).unwrap()
        };
        assert!(!of(4, Width::Wide).contains("rotate(270"));
        assert!(of(4, Width::Narrow).contains("rotate(270") && of(10, Width::Wide).contains("rotate(270"));
    }

    #[test]
    fn ticks_are_round_and_few() {
        let linear = Scale { low: 0.0, high: 7.4, log: false };
        assert_eq!(linear.ticks().iter().map(|t| tick(*t)).collect::<Vec<_>>(), ["0", "2", "4", "6"]);
        let log = Scale { low: 0.01, high: 30_000.0, log: true };
        let labels: Vec<String> = log.ticks().iter().map(|t| tick(*t)).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100", "1000", "10 k"]);
    }
}
