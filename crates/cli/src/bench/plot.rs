//! The pictures: bars for each case, as SVG and PNG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::job::{Case, Target};
use super::report::Report;

const SIZE: (u32, u32) = (960, 480);
const TARGETS: [(Target, RGBColor); 3] = [
    (Target::OneFile, RGBColor(31, 119, 180)),
    (Target::FilePerThread, RGBColor(174, 199, 232)),
    (Target::Raw, RGBColor(150, 150, 150)),
];

/// Draws results.svg and results.png.
pub fn draw(report: &Report, dir: &Path) -> Result<()> {
    // The bitmap backend has no fonts of its own.
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| anyhow!("the embedded font does not load"))?;
    chart(report, &SVGBackend::new(&dir.join("results.svg"), SIZE).into_drawing_area())?;
    chart(report, &BitMapBackend::new(&dir.join("results.png"), SIZE).into_drawing_area())
}

fn chart<B: DrawingBackend>(report: &Report, area: &DrawingArea<B, Shift>) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let most = Case::ALL
        .iter()
        .flat_map(|&case| TARGETS.map(|(target, _)| report.median(case, target).unwrap_or(0.0)))
        .fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(report.title(), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..Case::ALL.len() as f64, 0.0..most * 1.15)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc("writes per second")
        .y_label_formatter(&|rate| format!("{:.0}k", rate / 1000.0))
        .draw()?;
    for (nth, (target, color)) in TARGETS.into_iter().enumerate() {
        let bars = Case::ALL.iter().enumerate().filter_map(|(place, &case)| {
            let rate = report.median(case, target)?;
            let left = place as f64 + 0.14 + nth as f64 * 0.24;
            Some(Rectangle::new([(left, 0.0), (left + 0.22, rate)], color.filled()))
        });
        chart
            .draw_series(bars)?
            .label(target.name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    let names = Case::ALL.iter().enumerate().map(|(place, case)| {
        let (x, y) = chart.backend_coord(&(place as f64 + 0.5, 0.0));
        Text::new(case.name(), (x - 70, y + 10), ("sans-serif", 14))
    });
    for name in names {
        area.draw(&name)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(("sans-serif", 14))
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    Ok(())
}
