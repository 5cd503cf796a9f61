//! What the host sees: memory, refused launches, options.

use ptx_emulator::{
    Detectors, Error, FaultKind, Launch, LaunchError, Memory, MemoryError, Options,
};

use crate::support::{checked, fault, load, module, try_run};

const ONE: Launch = Launch {
    grid: [1; 3],
    block: [32, 1, 1],
    shared_bytes: 0,
};

#[test]
fn memory_refuses_ranges_that_leave_an_allocation() {
    let memory = Memory::new();
    let x = memory.alloc(100, 256, "x").expect("memory");
    let error = memory.write(x + 96, &[0; 5]).expect_err("past the end");
    let text = error.to_string();
    assert_eq!(
        text,
        "write: 5 bytes at 0x700000000060 are not inside one allocation \
         (byte 96 of `x` (100 bytes at 0x700000000000))"
    );
    assert!(memory.read(x, &mut [0; 101]).is_err());
    assert!(memory.fill(x - 1, 0, 1).is_err());
    assert!(matches!(
        memory.free(x + 1),
        Err(MemoryError::NotAnAllocation { .. })
    ));
    assert!(matches!(
        memory.alloc(1, 3, "odd"),
        Err(MemoryError::BadRequest { align: 3, .. })
    ));
    assert_eq!(
        memory.allocation_of(x + 99).map(|a| a.name),
        Some("x".to_string())
    );
    assert_eq!(memory.allocation_of(x + 100), None);
}

#[test]
fn memory_remembers_what_was_written() {
    let memory = Memory::new();
    let x = memory.alloc(64, 256, "x").expect("memory");
    assert_eq!(memory.first_unwritten(x, 64), Ok(Some(x)));
    memory.write(x + 3, &[9; 30]).expect("inside");
    assert_eq!(memory.first_unwritten(x + 3, 30), Ok(None));
    assert_eq!(memory.first_unwritten(x + 3, 31), Ok(Some(x + 33)));
    let mut back = [1; 34];
    memory.read(x, &mut back).expect("inside");
    assert_eq!(back, [[0; 3].as_slice(), &[9; 30], &[0]].concat()[..]);
}

#[test]
fn freed_memory_is_named_in_the_fault() {
    let text = module(
        "",
        "ld.param.u64 %rd1, [in]; ld.global.u32 %r1, [%rd1]; ret;",
    );
    let memory = Memory::new();
    let gone = memory.alloc(64, 256, "gone").expect("memory");
    memory.free(gone).expect("it is live");
    let params = [gone.to_le_bytes(), gone.to_le_bytes()].concat();
    let fault = fault(load(&text).launch(&memory, "test", ONE, &params, &checked()));
    assert!(
        fault.to_string().contains("byte 0 of freed `gone`"),
        "{fault}"
    );
    assert_ne!(memory.alloc(64, 256, "next").expect("memory"), gone);
}

#[test]
fn launches_that_a_machine_would_refuse_are_refused() {
    let text = module("", "ret;").replace("in)\n", "in)\n.maxntid 256, 1, 1\n");
    let module = load(&text);
    let memory = Memory::new();
    let go = |entry: &str, launch: Launch, params: usize| match module.launch(
        &memory,
        entry,
        launch,
        &vec![0; params],
        &checked(),
    ) {
        Err(Error::Launch(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        go("tset", ONE, 16),
        "launch: entry `tset` is not in the module, which has: test"
    );
    assert_eq!(
        go("test", ONE, 12),
        "launch test: param_bytes holds 12 bytes, must be 16"
    );
    let wide = Launch {
        block: [257, 1, 1],
        ..ONE
    };
    let text = go("test", wide, 16);
    assert_eq!(
        text,
        "launch test: the block has 257 threads, must be at most 256 (.maxntid)"
    );
    let empty = Launch {
        grid: [1, 0, 1],
        ..ONE
    };
    assert_eq!(
        go("test", empty, 16),
        "launch test: grid[1] = 0, must be in 1..=65535"
    );
    let deep = Launch {
        block: [1, 1, 65],
        ..ONE
    };
    assert_eq!(
        go("test", deep, 16),
        "launch test: block[2] = 65, must be in 1..=64"
    );
    let shared = Launch {
        shared_bytes: 232_449,
        ..ONE
    };
    assert_eq!(
        go("test", shared, 16),
        "launch test: 232449 bytes of shared memory (0 static + 232449 dynamic), must be at most 232448"
    );
}

#[test]
fn a_required_block_shape_is_required() {
    let text = module("", "ret;").replace("in)\n", "in)\n.reqntid 32, 2\n");
    let result = load(&text).launch(&Memory::new(), "test", ONE, &[0; 16], &checked());
    let Err(Error::Launch(LaunchError::RequiredBlock { required, .. })) = result else {
        panic!("{result:?}");
    };
    assert_eq!(required, [32, 2, 1]);
}

#[test]
fn entries_describe_their_parameters() {
    let text = ".version 8.1 .target sm_90 .address_size 64
        .shared .align 8 .b8 fixed[24]; .extern .shared .align 16 .b8 dynamic[];
        .visible .entry f(.param .u8 a, .param .align 16 .b8 b[24], .param .f32 c) .maxntid 64, 2, 1 {
        .reg .b32 %r<2>; .local .b8 mine[40]; mov.u32 %r0, fixed; mov.u32 %r1, dynamic; ret; }";
    let module = load(text);
    assert_eq!((module.version(), module.target()), ((8, 1), "sm_90"));
    let entry = module.entry("f").expect("the entry");
    let params: Vec<_> = entry
        .params
        .iter()
        .map(|p| (p.name.as_str(), p.size, p.align, p.offset))
        .collect();
    assert_eq!(params, [("a", 1, 1, 0), ("b", 24, 16, 16), ("c", 4, 4, 40)]);
    assert_eq!(
        (entry.param_bytes, entry.local_bytes, entry.max_threads),
        (44, 40, Some(128))
    );
    // The dynamic part starts at its own alignment.
    assert_eq!(entry.static_shared, 32);
}

#[test]
fn detectors_can_be_switched_off_one_by_one() {
    let off = |change: fn(&mut Detectors)| {
        let mut options = checked();
        change(&mut options.detectors);
        options
    };
    let go =
        |body: &str, options: &Options| try_run("", body, &[0; 64], options).map(|(out, _)| out);
    let tile = ".shared .align 4 .b8 tile[512]; mov.u32 %r5, tile; mad.lo.u32 %r6, %r0, 4, %r5;";
    let uninitialised = format!("{tile} ld.shared.u32 %r1, [%r6]; ret;");
    assert!(matches!(
        fault(go(&uninitialised, &checked())).kind,
        FaultKind::Uninitialised { .. }
    ));
    assert!(go(&uninitialised, &off(|d| d.uninitialised = false)).is_ok());
    let race = format!("{tile} st.shared.u32 [%r5], %r0; ret;");
    assert!(matches!(
        fault(go(&race, &checked())).kind,
        FaultKind::SharedRace { .. }
    ));
    assert!(go(&race, &off(|d| d.races = false)).is_ok());
    let copy = format!(
        "{tile} cp.async.ca.shared.global [%r6], [%rd2], 4; ld.shared.u32 %r1, [%r6]; ret;"
    );
    assert!(matches!(
        fault(go(&copy, &checked())).kind,
        FaultKind::AsyncPending { .. }
    ));
    assert!(go(&copy, &off(|d| d.races = false)).is_ok());
    let barrier = "setp.lt.u32 %p1, %r0, 32; @%p1 exit; bar.sync 0; mov.u64 %rd4, 5;
        st.global.u64 [%rd1], %rd4; ret;";
    assert!(matches!(
        fault(go(barrier, &checked())).kind,
        FaultKind::BarrierPartial { .. }
    ));
    assert_eq!(
        go(barrier, &off(|d| d.barriers = false)).expect("no fault")[63],
        5
    );
    let lanes = "setp.lt.u32 %p1, %laneid, 16; @%p1 bra END;
        shfl.sync.idx.b32 %r1, %r0, 3, 31, -1; END: ret;";
    assert!(matches!(
        fault(go(lanes, &checked())).kind,
        FaultKind::InactiveLane { .. }
    ));
    assert!(go(lanes, &off(|d| d.lanes = false)).is_ok());
    let division = "div.u32 %r1, 7, 0; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd1], %rd4; ret;";
    assert!(matches!(
        fault(go(division, &checked())).kind,
        FaultKind::DivisionByZero
    ));
    assert_eq!(
        go(division, &off(|d| d.division = false)).expect("no fault")[0],
        0xffff_ffff
    );
    // Bounds are always checked.
    let options = Options {
        detectors: Detectors::none(),
        ..checked()
    };
    let bounds = "ld.global.u32 %r1, [%rd2+4096]; ret;";
    assert!(matches!(
        fault(go(bounds, &options)).kind,
        FaultKind::OutOfBounds { .. }
    ));
}

#[test]
fn the_fault_of_the_lowest_block_is_reported() {
    let text = module(
        "",
        "mov.u32 %r1, %ctaid.x; setp.lt.u32 %p1, %r1, 5; @%p1 bra OK; trap; OK:
        mov.u32 %r2, 0; MORE: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3000; @%p2 bra MORE; ret;",
    );
    let module = load(&text);
    for threads in [1, 2, 5] {
        let options = Options {
            threads: Some(threads),
            ..checked()
        };
        let launch = Launch {
            grid: [64, 1, 1],
            ..ONE
        };
        let fault = fault(module.launch(&Memory::new(), "test", launch, &[0; 16], &options));
        assert_eq!((fault.block, fault.kind), ([5, 0, 0], FaultKind::Trap));
    }
}
