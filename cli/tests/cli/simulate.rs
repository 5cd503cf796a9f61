//! `simulate`.

use crate::{Folder, run};

/// The cells of a policy's row, which are two spaces or more apart.
#[track_caller]
fn row<'a>(text: &'a str, policy: &str) -> Vec<&'a str> {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(policy));
    let line = line.unwrap_or_else(|| panic!("no row {policy:?} in\n{text}"));
    line.trim()
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[track_caller]
fn number(cell: &str) -> f64 {
    let digits = cell.trim_end_matches([' ', '%', '×']);
    digits
        .parse()
        .unwrap_or_else(|_| panic!("{cell:?} is no number"))
}

#[test]
fn simulate_prints_shares_batches_and_ratios_and_writes_charts() {
    let folder = Folder::new("simulate");
    let charts = folder.path("charts");
    let args = [
        "simulate",
        "--trace",
        "sharegpt",
        "--requests",
        "300",
        "--charts",
        &charts,
    ];
    let text = run(&args).success();
    let paged = row(&text, "paged, blocks of 16");
    let maximum = row(&text, "contiguous, maximum");
    assert_eq!((paged.len(), maximum.len()), (8, 8), "{text}");
    // Shares of the memory add up.
    for row in [&paged, &maximum] {
        let sum: f64 = row[1..5].iter().map(|cell| number(cell)).sum();
        assert!((sum - 100.0).abs() < 0.3, "{row:?}");
    }
    // A block of 16 wastes 7.5 slots of some 400 on average; 2048 reserved slots hold 20 %.
    assert!(
        number(paged[1]) > 90.0 && number(maximum[1]) < 30.0,
        "{text}"
    );
    // 15,728 slots hold 7 reservations of 2048.
    assert_eq!(maximum[5], "7.0", "{text}");
    let ratio = number(paged[6]) / number(maximum[6]);
    assert!((ratio / number(maximum[7]) - 1.0).abs() < 0.02, "{text}");
    assert!(ratio > 2.0 && paged[7] == "1.00×", "{text}");
    for chart in ["memory-sharegpt.svg", "latency-sharegpt.svg"] {
        let path = std::path::Path::new(&charts).join(chart);
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(
            svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"),
            "{chart}"
        );
        assert!(svg.contains("contiguous, maximum") && svg.contains("paged, blocks of 16"));
    }

    assert_eq!(run(&args).success(), text, "the same seed");
    let other = run(&[&args[..], &["--seed", "2"]].concat()).success();
    assert_ne!(other, text);
}

#[test]
fn simulate_refuses_numbers_that_make_no_machine() {
    let folder = Folder::new("simulate-refuses");
    let charts = folder.path("charts");
    let refused = |option: &str, value: &str| {
        run(&["simulate", "--charts", &charts, option, value]).failure()
    };
    for option in [
        "--tflops",
        "--cache-gb",
        "--latency",
        "--paging-factor",
        "--requests",
    ] {
        let expected = format!("simulate: {option} is 0, must be above 0 and finite");
        assert_eq!(refused(option, "0"), expected);
    }
    assert_eq!(
        refused("--tflops", "inf"),
        "simulate: --tflops is inf, must be above 0 and finite"
    );
    assert_eq!(
        refused("--cache-gb", "1"),
        "simulate: the cache memory holds 1220 tokens with --max-len 2048, must hold between 2048 and \
         1073741824, and --max-len must be at least 2"
    );
    assert!(refused("--max-len", "1").ends_with("--max-len must be at least 2"));
    assert_eq!(
        refused("--max-len", "512"),
        "simulate: --max-len = 512, must be 1497 to 1073741824, three times the trace's mean length \
         and more"
    );
    assert_eq!(
        refused("--requests", "18446744073709551615"),
        "simulate: --requests = 18446744073709551615, must be 1 to 1000000"
    );
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn simulate_draws_no_conclusion_where_no_rate_meets_the_latency() {
    let folder = Folder::new("simulate-slow");
    let charts = folder.path("charts");
    let words = "simulate --trace alpaca --requests 100 --latency 0.0001";
    let words: Vec<&str> = words.split(' ').collect();
    let text = run(&[&words[..], &["--charts", &charts]].concat()).success();
    for policy in ["maximum", "power of two", "final length"] {
        let verdict = format!(
            "  No ratio to contiguous, {policy}: neither ever is within the latency limit, at any \
             request rate.\n"
        );
        assert!(text.contains(&verdict), "{text}");
    }
    assert_eq!(
        row(&text, "paged, blocks of 16")[6..],
        ["0.00", "-"],
        "{text}"
    );
    // Nothing is explained that has not been found, and nothing is 0 that has not been measured.
    assert!(!text.contains("Batches"), "{text}");
    assert_eq!(row(&text, "paged, blocks of 16")[1..6], ["-"; 5], "{text}");
    let path = std::path::Path::new(&charts).join("memory-alpaca.svg");
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(
        !svg.contains("NaN") && svg.contains("not measured"),
        "{svg}"
    );

    // A rate, but nothing that would explain it.
    let words = ["simulate", "--trace", "alpaca", "--requests", "1"];
    let text = run(&[&words[..], &["--charts", &charts]].concat()).success();
    assert_eq!(row(&text, "paged, blocks of 16")[7], "1.00×", "{text}");
    assert!(text.contains("Requests never wait for memory"), "{text}");
    assert!(!text.contains("Batches"), "{text}");
}
