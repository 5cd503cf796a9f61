//! What the driver knows: settings, and every object by its handle.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::boundary::{Handle, say};
use crate::context::Context;
use crate::error::Code;
use crate::event::Event;
use crate::function::Function;
use crate::graph::{Exec, Graph};
use crate::memory::Allocation;
use crate::module::LoadedModule;
use crate::settings::Settings;
use crate::stream::Stream;

/// What a handle names. The kind is part of the number, so that no handle is two things.
#[derive(Clone, Copy)]
pub enum Kind {
    Context = 1,
    Module,
    Function,
    Stream,
    Event,
    Graph,
    GraphNode,
    GraphExec,
    Pool,
}

/// Objects of one kind by handle.
pub struct Table<T> {
    objects: HashMap<Handle, Arc<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table {
            objects: HashMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// The object of a handle.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>, Code> {
        self.objects
            .get(&handle)
            .cloned()
            .ok_or(Code::INVALID_HANDLE)
    }

    /// Ends a handle.
    pub fn remove(&mut self, handle: Handle) -> Result<Arc<T>, Code> {
        self.objects.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Adds an object under a handle that [`State::new_handle`] gave.
    pub fn insert(&mut self, handle: Handle, object: Arc<T>) {
        self.objects.insert(handle, object);
    }

    /// Ends the handles of objects that `keep` does not hold to.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.objects.retain(|_, object| keep(object));
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values()
    }
}

/// A device's primary context.
#[derive(Clone, Copy, Default)]
pub struct Primary {
    /// Its handle, the same each time the context comes to life; 0 before the first.
    pub handle: Handle,
    /// How often it is retained.
    pub retained: u32,
    /// Flags for its creation.
    pub flags: u32,
}

/// Every object. Locks are taken in the order state, stream.
pub struct State {
    pub contexts: Table<Context>,
    pub modules: Table<LoadedModule>,
    pub functions: Table<Function>,
    pub streams: Table<Stream>,
    pub events: Table<Event>,
    pub graphs: Table<Graph>,
    pub execs: Table<Exec>,
    /// Device memory by first address.
    pub allocations: BTreeMap<u64, Allocation>,
    /// Pinned host memory by first address.
    pub pinned: BTreeMap<usize, crate::host_memory::Pinned>,
    /// By ordinal.
    pub primaries: Vec<Primary>,
    /// How many contexts there have been.
    pub contexts_made: usize,
    next: usize,
}

impl State {
    fn new(devices: usize) -> Self {
        State {
            contexts: Table::default(),
            modules: Table::default(),
            functions: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            graphs: Table::default(),
            execs: Table::default(),
            allocations: BTreeMap::new(),
            pinned: BTreeMap::new(),
            primaries: vec![Primary::default(); devices],
            contexts_made: 0,
            next: 1,
        }
    }

    /// A handle that was never used.
    pub fn new_handle(&mut self, kind: Kind) -> Handle {
        let handle = handle_of(kind, self.next);
        self.next += 1;
        handle
    }

    /// A number that no other object has.
    pub fn new_number(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

/// Recognisable, never a mapped address, and aligned as a pointer would be.
pub fn handle_of(kind: Kind, number: usize) -> Handle {
    0x4355_0000_0000_0000 | (kind as usize) << 40 | number << 4
}

/// The driver after `cuInit`.
pub struct Driver {
    pub settings: Settings,
    state: Mutex<State>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

impl Driver {
    /// `cuInit`.
    pub fn init() -> Result<(), Code> {
        if DRIVER.get().is_none() {
            let settings =
                Settings::parse(|name| std::env::var(name).ok()).map_err(|sentence| {
                    say(&sentence);
                    Code::SYSTEM_NOT_READY
                })?;
            DRIVER.get_or_init(|| Driver {
                state: Mutex::new(State::new(settings.devices)),
                settings,
            });
        }
        match Driver::get()?.settings.devices {
            0 => Err(Code::NO_DEVICE),
            _ => Ok(()),
        }
    }

    /// The driver, once initialised.
    pub fn get() -> Result<&'static Driver, Code> {
        DRIVER.get().ok_or(Code::NOT_INITIALIZED)
    }

    /// The settings that `cuInit` read, or will read.
    pub fn settings_or_default() -> Settings {
        match DRIVER.get() {
            Some(driver) => driver.settings.clone(),
            None => Settings::parse(|name| std::env::var(name).ok()).unwrap_or_default(),
        }
    }

    /// The objects.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The objects, once initialised.
pub fn state() -> Result<MutexGuard<'static, State>, Code> {
    Ok(Driver::get()?.state())
}

/// Locks; a panic elsewhere leaves nothing half done here that matters more than an answer.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

thread_local! {
    /// This thread's contexts, the current one last.
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// Works on this thread's stack of contexts.
pub fn with_stack<R>(f: impl FnOnce(&mut Vec<Handle>) -> R) -> R {
    STACK.with_borrow_mut(f)
}

/// The current context, faulted or not.
pub fn current_unchecked() -> Result<Arc<Context>, Code> {
    let state = state()?;
    let handle = with_stack(|stack| stack.last().copied()).filter(|&handle| handle != 0);
    let handle = handle.ok_or(Code::INVALID_CONTEXT)?;
    state
        .contexts
        .get(handle)
        .map_err(|_| Code::CONTEXT_IS_DESTROYED)
}

/// The current context; fails with its error if a kernel has faulted in it.
pub fn current() -> Result<Arc<Context>, Code> {
    let context = current_unchecked()?;
    context.check()?;
    Ok(context)
}
