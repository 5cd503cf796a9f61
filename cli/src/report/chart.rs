//! SVG charts of the tables.

use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::paging::{Cell, Sweep};
use super::targets::Measured;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

const SIZE: (u32, u32) = (960, 540);
/// Distinguishable by anyone, after Okabe and Ito.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const LABEL: (&str, u32) = ("sans-serif", 14);
const CAPTION: (&str, u32) = ("sans-serif", 18);

fn svg(draw: impl FnOnce(&Area<'_>) -> Drawn) -> io::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area));
        drawn
            .and_then(|()| area.present())
            .map_err(io::Error::other)?;
    }
    Ok(text)
}

/// Every figure as a share of what its target allows.
pub fn targets(rows: &[Measured]) -> io::Result<String> {
    let figures: Vec<_> = rows.iter().map(Measured::figures).collect();
    let groups = figures.iter().map(Vec::len).max().unwrap_or(0);
    let highest = figures
        .iter()
        .flatten()
        .map(|f| f.share())
        .fold(1.0, f64::max);
    svg(|area| {
        let mut chart = ChartBuilder::on(area)
            .caption(
                "Share of the target that is used up: below the line it is met",
                CAPTION,
            )
            .margin(16)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..groups as f64, 0.0..highest * 1.25)?;
        let names: Vec<_> = figures.iter().flatten().map(|figure| figure.name).collect();
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(0)
            .y_label_style(LABEL)
            .draw()?;
        let bar = 0.8 / rows.len().max(1) as f64;
        for (r, (row, figures)) in rows.iter().zip(&figures).enumerate() {
            let colour = COLOURS[r % COLOURS.len()];
            let bars = figures.iter().enumerate().map(|(i, figure)| {
                let left = i as f64 + 0.1 + r as f64 * bar;
                // A sliver where nothing is used up, so that no bar seems to be missing.
                let height = figure.share().max(highest * 0.004);
                Rectangle::new([(left, 0.0), (left + bar * 0.9, height)], colour.filled())
            });
            chart
                .draw_series(bars)?
                .label(row.name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
                });
        }
        let line = [(0.0, 1.0), (groups as f64, 1.0)];
        chart.draw_series(LineSeries::new(line, BLACK))?;
        chart.draw_series(names.iter().take(groups).enumerate().map(|(i, name)| {
            // Two heights, or neighbours would overlap.
            let y = highest * if i % 2 == 0 { 1.07 } else { 1.13 };
            Text::new(name.to_string(), (i as f64 + 0.05, y), ("sans-serif", 12))
        }))?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleMiddle)
            .background_style(WHITE)
            .border_style(BLACK)
            .label_font(LABEL)
            .draw()
    })
}

/// A chart per head configuration and kind of cost, with its file's name.
pub fn paging(sweeps: &[Sweep]) -> io::Result<Vec<(String, String)>> {
    let mut charts = Vec::new();
    for sweep in sweeps {
        let kinds = sweep
            .cells
            .first()
            .map(|cell| cell.cost.ratios())
            .unwrap_or_default();
        for (at, (kind, _)) in kinds.into_iter().enumerate() {
            let caption = format!("{}: {kind} of paged attention ÷ contiguous", sweep.name);
            let heads = sweep
                .name
                .split(' ')
                .next()
                .unwrap_or(sweep.name)
                .to_lowercase();
            let name = format!("paging_{heads}_{kind}.svg");
            charts.push((name, overhead(&caption, &sweep.cells, at)?));
        }
    }
    Ok(charts)
}

/// Percent over contiguous by block size, a line per context.
fn overhead(caption: &str, cells: &[Cell], at: usize) -> io::Result<String> {
    let percent = |cell: &Cell| (cell.cost.ratios()[at].1 - 1.0) * 100.0;
    let lowest = cells.iter().map(percent).fold(0.0, f64::min);
    let highest = cells.iter().map(percent).fold(1.0, f64::max);
    let sizes = cells.iter().map(|cell| cell.block_size as f64);
    let (least, most) = sizes.fold((f64::MAX, 2.0), |(least, most): (f64, f64), size| {
        (least.min(size), most.max(size))
    });
    let mut contexts: Vec<usize> = cells.iter().map(|cell| cell.ctx).collect();
    contexts.dedup();
    svg(|area| {
        let mut chart = ChartBuilder::on(area)
            .caption(caption, CAPTION)
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (least..most * 1.01).log_scale().base(2.0),
                lowest * 1.1..highest * 1.1,
            )?;
        chart
            .configure_mesh()
            .x_label_formatter(&|size| size.to_string())
            .x_desc("tokens per block")
            .y_desc("percent more than contiguous")
            .label_style(LABEL)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (i, &ctx) in contexts.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let line: Vec<_> = cells.iter().filter(|cell| cell.ctx == ctx).collect();
            let points = line
                .iter()
                .map(|cell| (cell.block_size as f64, percent(cell)));
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                .label(format!("context {ctx}"))
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .border_style(BLACK)
            .label_font(LABEL)
            .draw()
    })
}
