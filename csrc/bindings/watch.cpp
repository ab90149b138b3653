// Watch: whether Python objects are still what they were, compared by identity, a few nanoseconds an entry.
//
// What is watched belongs to the user: entries of dictionaries, members of lists, contents of closure cells,
// class attributes, and tensors' memory. Nothing here runs Python code except Entry::Call and an unusual
// tp_getattro.

#include "bindings/watch_entries.h"

namespace aicf::bindings {
namespace {

void require(bool holds, const char* message) {
  if (!holds) throw py::type_error(message);
}

Ref interned(const py::str& name) {
  PyObject* text = name.inc_ref().ptr();
  PyUnicode_InternInPlace(&text);
  Ref result(text);
  Py_DECREF(text);
  return result;
}

std::vector<Ref> references(const py::iterable& objects) {
  std::vector<Ref> result;
  for (const py::handle object : objects) result.emplace_back(object);
  return result;
}

// Of a list or a tuple, whatever its class says.
std::vector<Ref> members_of(PyObject* owner) {
  PyObject** items = PySequence_Fast_ITEMS(owner);
  return std::vector<Ref>(items, items + PySequence_Fast_GET_SIZE(owner));
}

Entry make_entry(Entry::Kind kind, py::handle owner) {
  Entry entry;
  entry.kind = kind;
  entry.owner = Ref(owner);
  return entry;
}

// `names`: the keys that matter. Each is expected to stay as it is now, or absent.
int64_t add_namespace(Watch& w, const py::dict& owner, const std::vector<py::str>& names) {
  Entry entry = make_entry(Entry::Namespace, owner);
  for (const py::str& name : names) {
    entry.expected_members.push_back(interned(name));
    entry.expected_members.emplace_back(PyDict_GetItemWithError(owner.ptr(), name.ptr()));
  }
  return w.add(std::move(entry));
}

int64_t add_items(Watch& w, const py::dict& owner) {
  Entry entry = make_entry(Entry::Items, owner);
  entry.expected_members = items_of(owner.ptr());
  return w.add(std::move(entry));
}

int64_t add_members(Watch& w, const py::object& owner) {
  require(PyList_Check(owner.ptr()) || PyTuple_Check(owner.ptr()), "expected a list or a tuple");
  Entry entry = make_entry(Entry::Members, owner);
  entry.expected_members = members_of(owner.ptr());
  return w.add(std::move(entry));
}

// Pointers inside of `owners`, which the entry keeps alive.
Entry pointers_entry(const py::object& owners) { return make_entry(Entry::Pointers, py::tuple(owners)); }

int64_t add_cell(Watch& w, const py::object& owner) {
  require(PyCell_Check(owner.ptr()), "expected a cell");
  Entry entry = pointers_entry(py::make_tuple(owner));
  entry.expect(&reinterpret_cast<PyCellObject*>(owner.ptr())->ob_ref);
  return w.add(std::move(entry));
}

int64_t add_class_attribute(Watch& w, const py::type& owner, const py::str& name) {
  Entry entry = make_entry(Entry::ClassAttribute, owner);
  entry.key = interned(name);
  entry.expected = Ref(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner.ptr()), entry.key.get()));
  return w.add(std::move(entry));
}

int64_t add_attribute(Watch& w, const py::object& owner, const py::str& name, const py::object& expected) {
  Entry entry = make_entry(Entry::Attribute, owner);
  entry.key = interned(name);
  entry.expected = Ref(expected);
  return w.add(std::move(entry));
}

// Objects of one type, whose attribute `name` is `expected`.
Entry attributes_entry(Entry::Kind kind, const py::list& owners, const py::str& name,
                       const py::object& expected) {
  Entry entry = make_entry(kind, py::none());
  entry.expected_members = references(owners);
  entry.key = interned(name);
  entry.expected = Ref(expected);
  PyTypeObject* type = owners.empty() ? nullptr : Py_TYPE(owners[0].ptr());
  bool one_type = type != nullptr;
  for (const py::handle owner : owners) one_type = one_type && Py_TYPE(owner.ptr()) == type;
  PyObject* found = one_type ? _PyType_Lookup(type, entry.key.get()) : nullptr;
  if (found && Py_IS_TYPE(found, &PyGetSetDescr_Type)) {
    const PyGetSetDef* definition = reinterpret_cast<PyGetSetDescrObject*>(found)->d_getset;
    entry.get = definition->get;
    entry.closure = definition->closure;
  }
  return entry;
}

int64_t add_attributes(Watch& w, const py::list& owners, const py::str& name, const py::object& expected) {
  return w.add(attributes_entry(Entry::Attributes, owners, name, expected));
}

// Tensors, of no subclass, that require a gradient.
int64_t add_trained(Watch& w, const py::list& owners) {
  return w.add(attributes_entry(Entry::Trained, owners, "requires_grad", py::bool_(true)));
}

// Objects that keep null pointers, so many bytes inside; they are expected to stay null.
int64_t add_fields(Watch& w, const py::list& owners, const std::vector<Py_ssize_t>& fields) {
  Entry entry = pointers_entry(owners);
  for (const py::handle owner : owners) {
    for (const Py_ssize_t field : fields) {
      require(
          field > 0 && field + static_cast<Py_ssize_t>(sizeof(void*)) <= Py_TYPE(owner.ptr())->tp_basicsize,
          "expected an offset inside each object");
      entry.pointers.push_back(reinterpret_cast<const char*>(owner.ptr()) + field);
    }
  }
  return w.add(std::move(entry));
}

// Dictionaries; as a pointer that is null, their size is 0.
int64_t add_empty(Watch& w, const py::list& owners) {
  Entry entry = pointers_entry(owners);
  for (const py::handle owner : owners) {
    require(PyDict_Check(owner.ptr()), "expected dictionaries");
    entry.pointers.push_back(&reinterpret_cast<PyDictObject*>(owner.ptr())->ma_used);
  }
  return w.add(std::move(entry));
}

int64_t add_bytes(Watch& w, const py::buffer& owner, const py::bytes& expected) {
  Entry entry = make_entry(Entry::Bytes, owner);
  entry.expected = Ref(expected);
  return w.add(std::move(entry));
}

// `capsules` hold tensor handles made by torch for this entry, which takes them over; `plain` says of each
// tensor whether it is of no subclass.
int64_t add_tensors(Watch& w, const py::list& owners, const py::list& capsules,
                    const std::vector<bool>& plain) {
  require(owners.size() == capsules.size() && owners.size() == plain.size(), "expected one of each a tensor");
  if (!TensorReader::get().complete())
    throw std::runtime_error("this torch lacks its stable C interface; AICF supports torch 2.11 to 2.13");
  Entry entry = make_entry(Entry::Tensors, owners);
  for (size_t i = 0; i < plain.size(); ++i) {
    PyObject* capsule = py::handle(capsules[i]).ptr();
    void* handle = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (!handle) throw py::error_already_set();
    entry.places.emplace_back(handle, plain[i]);
  }
  return w.add(std::move(entry));
}

int64_t add_call(Watch& w, const py::object& function, const py::object& expected) {
  Entry entry = make_entry(Entry::Call, function);
  entry.expected = Ref(expected);
  return w.add(std::move(entry));
}

int64_t add_word(Watch& w, const py::function& function, const py::object& argument) {
  Entry entry = make_entry(Entry::Said, function);
  if (!argument.is_none()) entry.key = Ref(argument);
  const auto now = py::reinterpret_steal<py::object>(called(function.ptr(), entry.key.get()));
  if (!now) throw py::error_already_set();
  entry.expected = Ref(now);
  return w.add(std::move(entry));
}

int64_t add_torch_words(Watch& w, const std::vector<size_t>& words) {
  Entry entry = make_entry(Entry::TorchWords, py::none());
  const TorchWords& torch = TorchWords::get();
  entry.torch_words.was = torch.read();
  for (const size_t word : words) {
    require(torch.has(word), "expected words of torch that can be read");
    entry.torch_words.mask[word] = ~uint64_t{0};
  }
  return w.add(std::move(entry));
}

// Every word of torch now, by its number; None for one that cannot be read.
std::vector<py::object> torch_words() {
  std::vector<py::object> found;
  const TorchWords& torch = TorchWords::get();
  const TorchWords::Values now = torch.read();
  for (size_t word = 0; word < now.size(); ++word)
    found.push_back(torch.has(word) ? py::int_(now[word]) : py::object(py::none()));
  return found;
}

// Their code, their defaults and those of their keywords.
int64_t add_functions(Watch& w, const py::list& functions) {
  Entry entry = pointers_entry(functions);
  for (const py::handle function : functions) {
    require(PyFunction_Check(function.ptr()), "expected functions of Python");
    auto* own = reinterpret_cast<PyFunctionObject*>(function.ptr());
    for (PyObject** part : {&own->func_code, &own->func_defaults, &own->func_kwdefaults}) entry.expect(part);
  }
  return w.add(std::move(entry));
}

int64_t add_types(Watch& w, const py::list& types) {
  Entry entry = make_entry(Entry::Types, py::none());
  for (const py::handle type : types) require(PyType_Check(type.ptr()), "expected classes");
  entry.expected_members = references(types);
  return w.add(std::move(entry));
}

// Their class and their dictionary.
int64_t add_instances(Watch& w, const py::list& objects) {
  Entry entry = pointers_entry(objects);
  for (const py::handle object : objects) {
    entry.expect(reinterpret_cast<PyObject**>(&object.ptr()->ob_type));
    if (PyObject** dictionary = _PyObject_GetDictPtr(object.ptr())) entry.expect(dictionary);
  }
  return w.add(std::move(entry));
}

int64_t add_context(Watch& w, const py::object& variable) {
  require(PyContextVar_CheckExact(variable.ptr()), "expected a ContextVar");
  Entry entry = make_entry(Entry::Context, variable);
  entry.expected = Ref(py::reinterpret_steal<py::object>(in_context(variable.ptr())));
  return w.add(std::move(entry));
}

int64_t add_watch(Watch& w, const py::object& other) {
  Entry entry = make_entry(Entry::Other, other);
  entry.watch = &other.cast<Watch&>();
  return w.add(std::move(entry));
}

// Where `owner` keeps a pointer to `value`, in bytes from its start; 0 where it does not.
Py_ssize_t find_field(const py::object& owner, const py::object& value) {
  const Py_ssize_t size = Py_TYPE(owner.ptr())->tp_basicsize, step = sizeof(void*);
  for (Py_ssize_t offset = sizeof(PyObject); offset + step <= size; offset += step)
    if (read_at<PyObject*>(owner.ptr(), offset) == value.ptr()) return offset;
  return 0;
}

// For how many tensors of entry `index` words of torch's objects are compared.
int64_t count_words(Watch& w, size_t index) {
  if (index >= w.entries().size()) throw py::index_error("no such entry");
  const std::vector<TensorPlace>& places = w.entry(index).places;
  return std::count_if(places.begin(), places.end(), [](const TensorPlace& p) { return p.has_words(); });
}

// For what is added, or accepted, from now on: see TorchLayout.
void set_torch_layout(uint64_t kind, ptrdiff_t storage, ptrdiff_t shape, ptrdiff_t data, ptrdiff_t impl,
                      ptrdiff_t autograd, ptrdiff_t requires_grad) {
  TorchLayout::get() = {kind, storage, shape, data, impl, autograd, requires_grad};
}

// Accepts what entry `index` is now.
void accept(Watch& w, size_t index) {
  if (index >= w.entries().size()) throw py::index_error("no such entry");
  Entry& entry = w.entry(index);
  PyObject* owner = entry.owner.get();
  switch (entry.kind) {
    case Entry::Namespace:
      for (size_t i = 0; i < entry.expected_members.size(); i += 2)
        entry.expected_members[i + 1] = Ref(PyDict_GetItemWithError(owner, entry.expected_members[i].get()));
      entry.seen.clear();
      break;
    case Entry::Items:
      entry.expected_members = items_of(owner);
      break;
    case Entry::Members:
      entry.expected_members = members_of(owner);
      break;
    case Entry::ClassAttribute:
      entry.expected = Ref(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), entry.key.get()));
      break;
    case Entry::Attribute:
      entry.expected =
          Ref(py::reinterpret_steal<py::object>(PyObject_GenericGetAttr(owner, entry.key.get())));
      if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();  // it has none now
      break;
    case Entry::Attributes:
    case Entry::Trained:
    case Entry::Types:
      break;  // they expect the same, or what is there now
    case Entry::Bytes:
      entry.expected = Ref(py::reinterpret_steal<py::object>(PyBytes_FromObject(owner)));
      break;
    case Entry::Tensors:
      for (TensorPlace& place : entry.places) place.accept();
      break;
    case Entry::Call:
      entry.expected = Ref(py::reinterpret_steal<py::object>(PyObject_CallNoArgs(owner)));
      break;
    case Entry::Said:
      entry.expected = Ref(py::reinterpret_steal<py::object>(called(owner, entry.key.get())));
      break;
    case Entry::TorchWords:
      entry.torch_words.was = TorchWords::get().read();
      break;
    case Entry::Pointers:
      for (size_t i = 0; i < entry.expected_members.size(); ++i)
        entry.expected_members[i] = Ref(read_at<PyObject*>(entry.pointers[i], 0));
      break;
    case Entry::Context:
      entry.expected = Ref(py::reinterpret_steal<py::object>(in_context(owner)));
      break;
    case Entry::Other:
      break;  // it accepts its own
  }
  if (PyErr_Occurred()) throw py::error_already_set();
  w.accepted(index);
}

// From the index on that is given, or from the first.
PyObject* changed(Watch& w, PyObject* const* arguments, Py_ssize_t count) {
  require(count <= 1, "changed() takes one index at most");
  const Py_ssize_t start = count ? PyLong_AsSsize_t(arguments[0]) : 0;
  if (start == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(w.changed(static_cast<size_t>(std::max<Py_ssize_t>(start, 0))));
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!py::detail::is_holder_constructed(self)) return 0;
  for (const Entry& entry : py::cast<Watch&>(py::handle(self)).entries()) {
    Py_VISIT(entry.owner.get());
    Py_VISIT(entry.key.get());
    Py_VISIT(entry.expected.get());
    for (const Ref& member : entry.expected_members) Py_VISIT(member.get());
    for (const Ref& member : entry.seen) Py_VISIT(member.get());
  }
  return 0;
}

int clear(PyObject* self) {
  if (!py::detail::is_holder_constructed(self)) return 0;
  py::cast<Watch&>(py::handle(self)).take();
  return 0;
}

}  // namespace

void bind_watch(py::module_& m) {
  const py::custom_type_setup collected([](PyHeapTypeObject* heap_type) {
    heap_type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    heap_type->ht_type.tp_traverse = traverse;
    heap_type->ht_type.tp_clear = clear;
  });
  py::class_<Watch> watch(m, "Watch", collected);
  bind_directly<Watch, changed>(watch, "changed");
  watch.def(py::init<>())
      .def("accept", &accept, py::arg("index"))
      .def("clear", [](Watch& w) { w.take(); })
      .def("add_namespace", &add_namespace)
      .def("add_items", &add_items)
      .def("add_members", &add_members)
      .def("add_cell", &add_cell)
      .def("add_class_attribute", &add_class_attribute)
      .def("add_attribute", &add_attribute)
      .def("add_bytes", &add_bytes)
      .def("add_attributes", &add_attributes)
      .def("add_trained", &add_trained)
      .def("add_fields", &add_fields)
      .def("add_empty", &add_empty)
      .def("add_tensors", &add_tensors)
      .def("add_call", &add_call)
      .def("add_word", &add_word, py::arg("function"), py::arg("argument"))
      .def("add_torch_words", &add_torch_words)
      .def_static("torch_words", &torch_words)
      .def("add_functions", &add_functions)
      .def("add_types", &add_types)
      .def("add_instances", &add_instances)
      .def("add_context", &add_context)
      .def("add_watch", &add_watch)
      .def("count_words", &count_words, py::arg("index"))
      .def_static("find_field", &find_field)
      .def_static("set_torch_layout", &set_torch_layout, py::arg("kind"), py::arg("storage"),
                  py::arg("shape"), py::arg("data"), py::arg("impl"), py::arg("autograd"),
                  py::arg("requires_grad"))
      .def("__len__", [](Watch& w) { return w.entries().size(); });
}

}  // namespace aicf::bindings
