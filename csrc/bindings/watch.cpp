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
  entry.expected_members = references(py::iterable(owner));
  return w.add(std::move(entry));
}

int64_t add_cell(Watch& w, const py::object& owner) {
  require(PyCell_Check(owner.ptr()), "expected a cell");
  Entry entry = make_entry(Entry::Cell, owner);
  entry.expected = Ref(PyCell_GET(owner.ptr()));
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
int64_t add_attributes(Watch& w, const py::list& owners, const py::str& name, const py::object& expected) {
  Entry entry = make_entry(Entry::Attributes, py::none());
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
  return w.add(std::move(entry));
}

// Tensors, of no subclass, that require a gradient.
int64_t add_trained(Watch& w, const py::list& owners) {
  const int64_t index = add_attributes(w, owners, "requires_grad", py::bool_(true));
  w.entry(static_cast<size_t>(index)).kind = Entry::Trained;
  return index;
}

// Objects that keep pointers, null now, so many bytes inside.
int64_t add_fields(Watch& w, const py::list& owners, const std::vector<Py_ssize_t>& fields) {
  Entry entry = make_entry(Entry::Fields, py::none());
  entry.expected_members = references(owners);
  entry.fields = fields;
  for (const py::handle owner : owners)
    for (const Py_ssize_t field : fields)
      require(
          field > 0 && field + static_cast<Py_ssize_t>(sizeof(void*)) <= Py_TYPE(owner.ptr())->tp_basicsize,
          "expected an offset inside each object");
  return w.add(std::move(entry));
}

int64_t add_empty(Watch& w, const py::list& owners) {
  Entry entry = make_entry(Entry::Empty, py::none());
  for (const py::handle owner : owners) require(PyDict_Check(owner.ptr()), "expected dictionaries");
  entry.expected_members = references(owners);
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
  Entry entry = make_entry(Entry::Word, function);
  if (!argument.is_none()) entry.key = Ref(argument);
  const auto now = py::reinterpret_steal<py::object>(called(function.ptr(), entry.key.get()));
  if (!now) throw py::error_already_set();
  entry.expected = Ref(now);
  return w.add(std::move(entry));
}

int64_t add_torch_words(Watch& w, const std::vector<size_t>& words) {
  Entry entry = make_entry(Entry::TorchWords, py::none());
  const TorchWords& torch = TorchWords::get();
  for (const size_t word : words) {
    require(torch.has(word), "expected words of torch that can be read");
    entry.words.emplace_back(word, torch.read(word));
  }
  return w.add(std::move(entry));
}

// Every word of torch now, by its number; None for one that cannot be read.
std::vector<py::object> torch_words() {
  std::vector<py::object> found;
  const TorchWords& torch = TorchWords::get();
  for (size_t word = 0; word < TorchWords::kCount; ++word)
    found.push_back(torch.has(word) ? py::int_(torch.read(word)) : py::object(py::none()));
  return found;
}

int64_t add_functions(Watch& w, const py::list& functions) {
  Entry entry = make_entry(Entry::Functions, py::none());
  for (const py::handle function : functions) {
    require(PyFunction_Check(function.ptr()), "expected functions of Python");
    add_parts(entry.expected_members, function.ptr());
  }
  return w.add(std::move(entry));
}

int64_t add_types(Watch& w, const py::list& types) {
  Entry entry = make_entry(Entry::Types, py::none());
  for (const py::handle type : types) require(PyType_Check(type.ptr()), "expected classes");
  entry.expected_members = references(types);
  entry.versions = versions_of(entry.expected_members);
  return w.add(std::move(entry));
}

int64_t add_instances(Watch& w, const py::list& objects) {
  Entry entry = make_entry(Entry::Instances, py::none());
  for (const py::handle object : objects) add_instance(entry.expected_members, object.ptr());
  return w.add(std::move(entry));
}

int64_t add_context(Watch& w, const py::object& variable) {
  require(PyContextVar_CheckExact(variable.ptr()), "expected a ContextVar");
  Entry entry = make_entry(Entry::Context, variable);
  entry.expected = Ref(py::reinterpret_steal<py::object>(in_context(variable.ptr())));
  return w.add(std::move(entry));
}

// What of each group of `count` parts is watched, from now on with what it is made of now.
void renew_parts(Entry& entry, size_t count, void (*add)(std::vector<Ref>&, PyObject*)) {
  std::vector<Ref> parts;
  for (size_t i = 0; i < entry.expected_members.size(); i += count)
    add(parts, entry.expected_members[i].get());
  entry.expected_members = std::move(parts);
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
    if (pointer_at(owner.ptr(), offset) == value.ptr()) return offset;
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
      entry.expected_members = references(py::reinterpret_borrow<py::iterable>(owner));
      break;
    case Entry::Cell:
      entry.expected = Ref(PyCell_GET(owner));
      break;
    case Entry::ClassAttribute:
      entry.expected = Ref(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), entry.key.get()));
      break;
    case Entry::Attribute:
      entry.expected = Ref(py::reinterpret_steal<py::object>(PyObject_GetAttr(owner, entry.key.get())));
      break;
    case Entry::Attributes:
    case Entry::Trained:
    case Entry::Fields:
    case Entry::Empty:
      break;  // what they expect is said when they are added
    case Entry::Bytes:
      entry.expected = Ref(py::reinterpret_steal<py::object>(PyBytes_FromObject(owner)));
      break;
    case Entry::Tensors:
      for (TensorPlace& place : entry.places) place.accept();
      break;
    case Entry::Call:
      entry.expected = Ref(py::reinterpret_steal<py::object>(PyObject_CallNoArgs(owner)));
      break;
    case Entry::Word:
      entry.expected = Ref(py::reinterpret_steal<py::object>(called(owner, entry.key.get())));
      break;
    case Entry::TorchWords:
      for (auto& [word, was] : entry.words) was = TorchWords::get().read(word);
      break;
    case Entry::Functions:
      renew_parts(entry, kFunctionParts, add_parts);
      break;
    case Entry::Types:
      entry.versions = versions_of(entry.expected_members);
      break;
    case Entry::Instances:
      renew_parts(entry, kInstanceParts, add_instance);
      break;
    case Entry::Context:
      entry.expected = Ref(py::reinterpret_steal<py::object>(in_context(owner)));
      break;
    case Entry::Other:
      break;  // it accepts its own
  }
  if (PyErr_Occurred()) throw py::error_already_set();
  w.renew(index);
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
  py::class_<Watch>(m, "Watch", collected)
      .def(py::init<>())
      .def("changed", &Watch::changed, py::arg("start") = 0)
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
