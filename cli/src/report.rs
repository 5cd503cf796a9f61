//! `report`: what the kernels cost, beside their targets and beside contiguous attention.

mod assembled;
mod chart;
mod counted;
mod machine;
#[cfg(feature = "cuda")]
mod on_cuda;
mod pages;
mod paging;
mod targets;
mod twin;

use std::fs;
use std::io::Write;

use crate::args::ReportArgs;
use crate::error::Error;
use crate::output;

/// Runs the command.
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), Error> {
    // Before any work.
    let timer = paging::Timer::choose(args.device)?;
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(Error::write(dir))?;
    }
    let progress = output::spinner("counting");
    let rows = targets::measure()?;
    progress.finish_and_clear();
    targets::print(&rows, out)?;
    let sweeps = paging::sweep(args, &timer)?;
    paging::print(args, &timer, &sweeps, out)?;

    let Some(dir) = &args.out else {
        return Ok(());
    };
    writeln!(out)?;
    let drawn = chart::targets(&rows).and_then(|svg| {
        let mut charts = vec![("targets.svg".to_string(), svg)];
        // Times that say nothing are not drawn.
        if !timer.is_emulated_driver() {
            charts.extend(chart::paging(&sweeps)?);
        }
        Ok(charts)
    });
    for (name, svg) in drawn.map_err(Error::write(dir))? {
        let path = dir.join(name);
        output::write(&path, |file| file.write_all(svg.as_bytes()))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
