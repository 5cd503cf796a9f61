//! The charts, as SVG.

use plotters::prelude::*;

use super::policy::Policy;
use super::sweep::Found;

const WIDTH: u32 = 900;
const ROW: u32 = 34;
/// Parts of the cache memory, in the order of the bars.
const PARTS: [(&str, RGBColor); 4] = [
    ("tokens", RGBColor(46, 125, 80)),
    ("reserved for tokens to come", RGBColor(240, 180, 60)),
    ("inside reservations, never used", RGBColor(205, 80, 70)),
    ("outside reservations", RGBColor(190, 190, 190)),
];

/// Why a chart cannot be drawn: nothing that the numbers can cause.
pub type Failure = Box<dyn std::error::Error>;

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

/// What the cache memory holds under load: one bar per policy.
pub fn memory(title: &str, found: &[Found]) -> Result<String, Failure> {
    const TOP: i32 = 90;
    const LEFT: i32 = 210;
    const SPAN: f64 = (WIDTH as i32 - LEFT - 40) as f64;
    let mut svg = String::new();
    {
        let height = TOP as u32 + ROW * found.len() as u32 + 40;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        area.draw_text(title, &text(20), (20, 14))?;
        let mut x = 20;
        for (name, color) in PARTS {
            area.draw(&Rectangle::new([(x, 52), (x + 14, 66)], color.filled()))?;
            area.draw_text(name, &text(14), (x + 20, 51))?;
            x += 60 + 7 * name.len() as i32;
        }
        for (i, found) in found.iter().enumerate() {
            let y = TOP + (ROW * i as u32) as i32;
            area.draw_text(&found.policy.name(), &text(14), (20, y + 6))?;
            let shares = found.loaded.shares;
            if shares.tokens.is_nan() {
                let label = "not measured: requests never waited for memory";
                area.draw_text(label, &text(14), (LEFT + 6, y + 6))?;
                continue;
            }
            let used = shares.tokens + shares.reserved + shares.internal;
            let parts = [shares.tokens, shares.reserved, shares.internal, 1.0 - used];
            let mut start = 0.0;
            for (part, (_, color)) in parts.into_iter().zip(PARTS) {
                let at = |share: f64| LEFT + (share.clamp(0.0, 1.0) * SPAN).round() as i32;
                let corners = [(at(start), y), (at(start + part), y + ROW as i32 - 8)];
                area.draw(&Rectangle::new(corners, color.filled()))?;
                start += part;
            }
            let label = format!("{:.1} %", 100.0 * shares.tokens);
            let color = if shares.tokens > 0.12 { WHITE } else { BLACK };
            let style = text(14).color(&color);
            area.draw_text(&label, &style, (LEFT + 6, y + 6))?;
        }
        let y = TOP + (ROW as usize * found.len()) as i32;
        for percent in [0, 25, 50, 75, 100] {
            let x = LEFT + (SPAN * f64::from(percent) / 100.0) as i32;
            area.draw_text(&format!("{percent} %"), &text(13), (x - 12, y + 4))?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Mean latency against request rate: the contiguous policies and a few block sizes.
pub fn latency(title: &str, found: &[Found], limit: f64) -> Result<String, Failure> {
    let shown: Vec<&Found> = found
        .iter()
        .filter(|f| !matches!(f.policy, Policy::Paged(size) if ![1, 16, 256].contains(&size)))
        .collect();
    let right = shown.iter().map(|f| f.rate).fold(0.0, f64::max) * 1.1;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, text(20))
            .margin(16)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..right.max(f64::MIN_POSITIVE), 0.0..2.0 * limit)?;
        chart
            .configure_mesh()
            .x_desc("requests per second")
            .y_desc("mean normalised latency, s/token")
            .label_style(text(14))
            .axis_desc_style(text(15))
            .light_line_style(WHITE)
            .draw()?;
        let edge = [(0.0, limit), (right, limit)];
        chart.draw_series(LineSeries::new(edge, BLACK.mix(0.4)))?;
        for (i, found) in shown.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let line = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(found.curve.iter().copied(), line))?
                .label(found.policy.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], line));
            let inside = found
                .curve
                .iter()
                .filter(|(_, latency)| *latency < 2.0 * limit);
            chart.draw_series(inside.map(|&point| Circle::new(point, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(BLACK.mix(0.3))
            .label_font(text(14))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
