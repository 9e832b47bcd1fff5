//! Runs steps: some lists of them at the same time, or one alone.

use std::thread;

use anyhow::{Result, bail};

use super::{LISTS, List, Step, all};
use crate::beside;
use crate::debian;
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace;

/// What a call of `cargo xtask test` runs.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// The names of the only steps; all if empty.
    pub only: &'a [String],
    /// How much of each step.
    pub scope: Scope,
    /// True in a process that another one has started for one list, after it installed the packages
    /// and built the programs.
    pub is_beside: bool,
}

impl Choice<'_> {
    fn includes(self, step: &Step) -> bool {
        let is_in_scope = self.scope != Scope::Quick || !step.is_full_only;
        if self.only.is_empty() { is_in_scope } else { self.only.iter().any(|name| name == step.name) }
    }

    /// Returns the steps of a list that it includes.
    fn of(self, list: &'static List) -> Vec<&'static Step> {
        list.steps.iter().filter(|step| self.includes(step)).collect()
    }
}

/// A list, and the chosen steps of it.
type Chosen = (&'static List, Vec<&'static Step>);

/// Runs the chosen steps; returns whether all passed. Each list runs in a process of its own, a
/// single list in this one.
///
/// # Errors
/// If no step has one of the chosen names.
pub fn test(choice: Choice<'_>) -> Result<bool> {
    if let Some(name) = choice.only.iter().find(|name| !all().any(|step| step.name == **name)) {
        bail!("no step is named {name}; `cargo xtask test --list` shows them");
    }
    let lists: Vec<Chosen> = LISTS.iter().map(|list| (list, choice.of(list))).collect();
    let lists: Vec<_> = lists.into_iter().filter(|(_, steps)| !steps.is_empty()).collect();
    let mut report = Report::default();
    if choice.is_beside {
        workspace::use_programs();
    } else {
        report.step("packages", install);
    }
    match &lists[..] {
        [(_, steps)] => steps.iter().for_each(|step| run_step(step, choice.scope, &mut report)),
        lists => run_lists(lists, choice.scope, &mut report),
    }
    Ok(report.finish())
}

/// Runs lists at the same time. A list that runs programs begins when they are built.
fn run_lists(lists: &[Chosen], scope: Scope, report: &mut Report) {
    thread::scope(|threads| {
        let start = |(list, steps): &Chosen| {
            let (list, names) = (*list, steps.iter().map(|step| step.name).collect::<Vec<_>>());
            (list.name, threads.spawn(move || beside::run(list.name, &names, scope, list.nice)))
        };
        let (later, first): (Vec<_>, Vec<_>) = lists.iter().partition(|(list, _)| list.runs_programs);
        let mut running: Vec<_> = first.into_iter().map(start).collect();
        if !later.is_empty() {
            report.step("programs", |_| workspace::build_programs().map(drop));
            running.extend(later.into_iter().filter(|_| workspace::are_programs_built()).map(start));
        }
        for (list, lines) in running {
            match lines.join().expect("it does not panic") {
                Ok(lines) => report.add_summary(&lines, list),
                Err(error) => report.fail(list, &format!("{error:#}")),
            }
        }
    });
}

/// Installs the packages that the steps need.
fn install(report: &mut Report) -> Result<()> {
    let missing = debian::install(&debian::ALL.concat());
    if !missing.is_empty() {
        report.skip("packages", &format!("missing, so what needs them is skipped: {}", missing.join(" ")));
    }
    Ok(())
}

/// Runs one step alone.
pub fn one(name: &str, scope: Scope) -> bool {
    let mut report = Report::default();
    for step in all().filter(|step| step.name == name) {
        run_step(step, scope, &mut report);
    }
    report.finish()
}

/// Runs a campaign that is not a step of `cargo xtask test`, or a longer run of one that is.
pub fn alone(name: &str, campaign: impl FnOnce(&mut Report) -> Result<()>) -> bool {
    let mut report = Report::default();
    report.step(name, |report| {
        let missing = debian::install(debian::FUSE_MOUNTS);
        if !missing.is_empty() {
            report.skip(name, &format!("missing, so what needs them is skipped: {}", missing.join(" ")));
        }
        campaign(report)
    });
    report.finish()
}

fn run_step(step: &Step, scope: Scope, report: &mut Report) {
    report.step(step.name, |report| {
        if step.mounts
            && let Err(why) = debian::check_kernel_mounts()
        {
            report.skip(step.name, &format!("{why:#}"));
            return Ok(());
        }
        (step.run)(scope, report)
    });
}
