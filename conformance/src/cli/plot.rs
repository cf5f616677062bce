//! Plots, as SVG.

use std::path::Path;

use anyhow::Context;
use metaroce_conformance::sim::Outcome;
use metaroce_conformance::sim::scenario::Metric;
use metaroce_conformance::sim::units::{US, ratio, to_f64};
use plotters::prelude::*;

use super::suite::Suite;

/// A named curve.
type Curve = (String, Vec<(f64, f64)>);

/// Which curves over time are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Curves {
    /// All, of all cases with samples.
    All,
    /// Those that cases name as their main one.
    Main,
}

/// Writes what there is to see: the goodput of the cases over their x, and the time over the ideal one where a target is
/// about that; and for each case with samples, of its first seed, throughput, windows, rates and fairness over time.
/// [`Curves::Main`] leaves of these only the one that the case names.
pub fn write(suite: &Suite, directory: &Path, which: Curves) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("can't make {}", directory.display()))?;
    let (name, title) = (&suite.scenario.name, &suite.scenario.about);
    let axes = |y| Axes { title, x: &suite.scenario.x_label, y, logarithmic: true };
    draw(&directory.join(format!("{name}.svg")), &axes("goodput"), &curves(suite, Metric::Goodput))?;
    let mut targets = suite.scenario.cases.iter().flat_map(|case| &case.spec.targets);
    if targets.any(|target| target.metric == Metric::Slowdown) {
        let mut curves = curves(suite, Metric::Slowdown);
        for point in curves.iter_mut().flat_map(|(_, points)| points) {
            point.1 = point.1.min(SLOWDOWN_MOST);
        }
        let file = directory.join(format!("{name}-time.svg"));
        draw(&file, &axes("time ÷ ideal time (what is above 4 is drawn at 4)"), &curves)?;
    }
    for (number, (case, result)) in suite.scenario.cases.iter().zip(&suite.results).enumerate() {
        let Some(outcome) = result.outcomes.first().filter(|outcome| outcome.samples.len() > 2) else {
            continue;
        };
        let title = format!("{name}, {}", case.name);
        let time = |x, y| Axes { title: &title, x, y, logarithmic: false };
        let plots = [
            ("throughput", time("µs", "Gb/s placed"), vec![throughput(outcome)]),
            ("windows", time("µs", "KiB, window of each path of the first flow"), windows(outcome)),
            ("rates", time("µs", "Gb/s allowed, first flows"), rates(outcome)),
            (
                "fairness",
                time("base RTTs", "largest distance of an allowed rate from its fair part"),
                fairness(outcome),
            ),
        ];
        for (what, axes, curves) in plots {
            if which == Curves::All || case.spec.main_plot.as_deref() == Some(what) {
                draw(&directory.join(format!("{name}-{}-{what}.svg", number + 1)), &axes, &curves)?;
            }
        }
    }
    Ok(())
}

/// Where the curve of times is cut off.
const SLOWDOWN_MOST: f64 = 4.0;
/// RTTs that the curve of fairness shows.
const FAIRNESS_RTTS: f64 = 40.0;

fn fairness(outcome: &Outcome) -> Vec<Curve> {
    let half_ps = outcome.rtt_ps / 2;
    let rtts = |at_ps: u64| ratio(at_ps.saturating_sub(half_ps), outcome.rtt_ps.max(1));
    let within = outcome.samples.iter().map(|sample| (rtts(sample.at_ps), sample));
    let within = within.take_while(|(rtts, _)| *rtts <= FAIRNESS_RTTS);
    let points = within.map(|(rtts, sample)| (rtts, sample.unfairness.min(2.0))).collect();
    let target = vec![(0.0, 0.1), (FAIRNESS_RTTS, 0.1)];
    vec![("since the first packets arrived".to_owned(), points), ("10 %".to_owned(), target)]
}

/// Writes the goodput over what was varied.
pub fn write_sweep(suite: &Suite, varied: &str, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("can't make {}", directory.display()))?;
    let first = varied.split([',', ' ']).next().unwrap_or(varied).to_lowercase();
    let name = &suite.scenario.name;
    let title = format!("{name}: goodput by {varied}");
    let axes = Axes { title: &title, x: varied, y: "goodput", logarithmic: true };
    draw(&directory.join(format!("sweep-{name}-{first}.svg")), &axes, &curves(suite, Metric::Goodput))
}

/// Cases with an x: one curve for each part of a name before a colon (`metaroce: 1 %`).
fn curves(suite: &Suite, metric: Metric) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (case, result) in suite.scenario.cases.iter().zip(&suite.results) {
        let Some(x) = case.spec.x else { continue };
        let label = case.name.split_once(": ").map_or("metaroce", |(label, _)| label);
        let point = (x, metric.median(&result.outcomes));
        match curves.iter_mut().find(|(known, _)| known == label) {
            Some((_, points)) => points.push(point),
            None => curves.push((label.to_owned(), vec![point])),
        }
    }
    curves
}

fn throughput(outcome: &Outcome) -> Curve {
    let pairs = outcome.samples.iter().zip(outcome.samples.iter().skip(1));
    let rate = |(before, after): (&_, &_)| {
        let (before, after): (&metaroce_conformance::sim::metrics::Sample, &_) = (before, after);
        let after: &metaroce_conformance::sim::metrics::Sample = after;
        let bytes = after.placed_bytes - before.placed_bytes;
        (ratio(after.at_ps, US), 8_000.0 * ratio(bytes, after.at_ps - before.at_ps))
    };
    ("all hosts".to_owned(), pairs.map(rate).collect())
}

fn windows(outcome: &Outcome) -> Vec<Curve> {
    let paths = outcome.samples.iter().map(|sample| sample.paths.len()).max().unwrap_or(0);
    (0..paths)
        .map(|path| {
            let point = |sample: &metaroce_conformance::sim::metrics::Sample| {
                sample.paths.get(path).map(|at| (ratio(sample.at_ps, US), ratio(at.window_bytes, 1 << 10)))
            };
            (format!("path {path}"), outcome.samples.iter().filter_map(point).collect())
        })
        .collect()
}

fn rates(outcome: &Outcome) -> Vec<Curve> {
    let flows = outcome.samples.iter().map(|sample| sample.allowed_bps.len()).max().unwrap_or(0);
    (0..flows)
        .map(|flow| {
            let point = |sample: &metaroce_conformance::sim::metrics::Sample| {
                sample.allowed_bps.get(flow).map(|&rate| (ratio(sample.at_ps, US), to_f64(rate) / 1e9))
            };
            (format!("flow {flow}"), outcome.samples.iter().filter_map(point).collect())
        })
        .collect()
}

struct Axes<'a> {
    title: &'a str,
    x: &'a str,
    y: &'a str,
    logarithmic: bool,
}

fn draw(file: &Path, axes: &Axes<'_>, curves: &[Curve]) -> anyhow::Result<()> {
    let points = || curves.iter().flat_map(|(_, points)| points.iter().copied());
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let (right, top) = (most(&mut points().map(|point| point.0)), most(&mut points().map(|point| point.1)));
    let left = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    if !left.is_finite() || right <= left {
        return Ok(());
    }
    let root = SVGBackend::new(file, (800, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&root);
    builder.caption(axes.title, ("sans-serif", 16)).margin(12).x_label_area_size(36).y_label_area_size(56);
    let height = 0.0..top.max(1e-9) * 1.05;
    macro_rules! plot {
        ($chart:expr) => {{
            let mut chart = $chart;
            chart.configure_mesh().x_desc(axes.x).y_desc(axes.y).light_line_style(WHITE).draw()?;
            for (number, (label, points)) in curves.iter().enumerate() {
                let colour = Palette99::pick(number).to_rgba();
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
                    .label(label)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
            }
            if curves.len() > 1 {
                chart
                    .configure_series_labels()
                    .background_style(WHITE.mix(0.8))
                    .border_style(BLACK)
                    .draw()?;
            }
        }};
    }
    if axes.logarithmic {
        plot!(builder.build_cartesian_2d((left..right).log_scale(), height)?);
    } else {
        plot!(builder.build_cartesian_2d(left..right, height)?);
    }
    root.present().with_context(|| format!("can't write {}", file.display()))?;
    Ok(())
}
