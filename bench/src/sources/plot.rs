//! Draws the results as SVG and PNG: a bar for each line of the table.
//!
//! The length of a bar is its share of the best of its case, because cases differ too much for one
//! scale. Its figure follows it.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::cases::Subject;
use super::mount::FileSystem;
use super::report::{Line, Measured, Report};

/// Pixels.
const COLUMN: i32 = 820;
const LABEL: i32 = 300;
const BAR: i32 = 250;
const STEP: i32 = 16;
const HEADING: i32 = 26;
const GAP: i32 = 10;
const MARGIN: i32 = 16;
const TITLE: i32 = 40;

/// Draws results.svg and results.png.
pub fn draw(report: &Report, dir: &Path) -> Result<()> {
    // The bitmap backend has no fonts of its own.
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| anyhow!("the embedded font does not load"))?;
    let columns = columns(&report.cases);
    let tallest = columns.iter().map(|cases| cases.iter().map(height).sum()).max().unwrap_or(0);
    let width = COLUMN * i32::try_from(columns.len())? + 2 * MARGIN;
    let size = (width.unsigned_abs(), (TITLE + tallest + MARGIN).unsigned_abs());
    let title = report.title();
    picture(&title, &columns, &SVGBackend::new(&dir.join("results.svg"), size).into_drawing_area())?;
    let mut pixels = vec![0; size.0 as usize * size.1 as usize * RGB];
    picture(&title, &columns, &BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area())?;
    write_png(&dir.join("results.png"), size, &pixels)
}

/// Bytes of a pixel.
const RGB: usize = 3;

fn write_png(path: &Path, (width, height): (u32, u32), pixels: &[u8]) -> Result<()> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    Ok(writer.finish()?)
}

/// Splits the cases into two columns of about the same height. At most 3 cases stay in one column.
fn columns(cases: &[Measured]) -> Vec<&[Measured]> {
    const MAX_IN_ONE: usize = 3;
    if cases.len() <= MAX_IN_ONE {
        return vec![cases];
    }
    let half = cases.iter().map(height).sum::<i32>() / 2;
    let mut filled = 0;
    let split = cases.iter().take_while(|row| {
        filled += height(row);
        filled - height(row) / 2 <= half
    });
    let (left, right) = cases.split_at(split.count());
    vec![left, right]
}

/// Returns the pixels from the top of a row to the top of the next.
fn height(row: &Measured) -> i32 {
    let lines = i32::try_from(row.lines.len()).unwrap_or(i32::MAX / STEP);
    HEADING + STEP * lines + GAP
}

fn picture<B: DrawingBackend>(
    title: &str,
    columns: &[&[Measured]],
    area: &DrawingArea<B, Shift>,
) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    area.draw(&Text::new(title.to_owned(), (MARGIN, MARGIN), ("sans-serif", 18)))?;
    for (nth, column) in (0..).zip(columns) {
        let mut top = TITLE;
        for row in *column {
            draw_row(row, (MARGIN + nth * COLUMN, top), area)?;
            top += height(row);
        }
    }
    area.present()?;
    Ok(())
}

fn draw_row<B: DrawingBackend>(
    row: &Measured,
    (left, top): (i32, i32),
    area: &DrawingArea<B, Shift>,
) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.draw(&Text::new(row.heading(), (left, top + 6), ("sans-serif", 15)))?;
    let best = row.lines.iter().map(Line::iops).fold(1.0, f64::max);
    let bars = left + LABEL;
    for (nth, line) in (0..).zip(&row.lines) {
        let y = top + HEADING + nth * STEP;
        // A share of `best`, so at most BAR.
        let end = bars + (f64::from(BAR) * line.iops() / best) as i32;
        area.draw(&Text::new(line.label.clone(), (left + 8, y + 1), ("sans-serif", 12)))?;
        area.draw(&Rectangle::new([(bars, y + 1), (end, y + STEP - 3)], color(line).filled()))?;
        area.draw(&Text::new(line.value(), (end + 6, y + 1), ("sans-serif", 12)))?;
    }
    Ok(())
}

/// Returns the color of a bar. parext4 is blue, lighter with settings other than the defaults.
fn color(line: &Line) -> RGBColor {
    match line.on() {
        Subject::Lib(_) if line.is_default() => RGBColor(31, 119, 180),
        Subject::Lib(_) => RGBColor(158, 202, 225),
        Subject::Raw(_) | Subject::Copy => RGBColor(150, 150, 150),
        Subject::FileSystem(FileSystem::Mounted(_)) => RGBColor(8, 69, 148),
        Subject::FileSystem(FileSystem::Ext4) => RGBColor(255, 127, 14),
        Subject::FileSystem(FileSystem::Xfs) => RGBColor(44, 160, 44),
        Subject::FileSystem(FileSystem::Null) => RGBColor(188, 189, 34),
        Subject::FileSystem(FileSystem::Fuse2fs) => RGBColor(140, 86, 75),
    }
}
