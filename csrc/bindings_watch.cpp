// Watch: whether Python objects are still what they were, compared by identity, a few nanoseconds an entry.
//
// What is watched belongs to the user: entries of dictionaries, members of lists, contents of closure cells,
// class attributes, and tensors' memory. Nothing here runs Python code except Entry::Call and an unusual
// tp_getattro.
#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings.h"
#include "bindings_tensor_place.h"

namespace aicf::bindings {
namespace {

// A strong reference that the cyclic collector can see through Watch.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* borrowed) : object_(borrowed) { Py_XINCREF(object_); }
  explicit Ref(py::handle borrowed) : Ref(borrowed.ptr()) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }

 private:
  PyObject* object_ = nullptr;
};

class Watch;

// One thing that is watched, or many of a kind: these are compared fast, and whoever watches them finds out
// which.
struct Entry {
  enum Kind {
    Namespace,
    Items,
    Empty,  // dictionaries
    Members,
    Cell,
    ClassAttribute,
    Attribute,
    Attributes,  // one attribute of many objects
    Fields,      // pointers inside many objects, all null
    Bytes,
    Tensors,
    Call,
    Other
  } kind;
  Ref owner;
  Ref key;       // of ClassAttribute, Attribute and Attributes
  Ref expected;  // null: an empty cell
  // Of Namespace and Items: key, value, key, …, a null value for an absent one; else the members.
  std::vector<Ref> expected_members;
  std::vector<Ref> seen;  // of Namespace: the whole dictionary when it was last found right
  std::vector<TensorPlace> places;
  getter get = nullptr;  // of Attributes: torch's own getter, without the search for it
  void* closure = nullptr;
  Py_ssize_t field = 0;    // of Fields: bytes from the start of the object
  Watch* watch = nullptr;  // of Other

  bool same();
};

std::vector<Ref> items_of(PyObject* dictionary) {
  std::vector<Ref> items;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dictionary, &position, &key, &value)) {
    items.emplace_back(key);
    items.emplace_back(value);
  }
  return items;
}

bool same_items(PyObject* dictionary, const std::vector<Ref>& expected) {
  if (static_cast<size_t>(PyDict_GET_SIZE(dictionary)) * 2 != expected.size()) return false;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  for (size_t i = 0; PyDict_Next(dictionary, &position, &key, &value); i += 2)
    if (key != expected[i].get() || value != expected[i + 1].get()) return false;
  return true;
}

bool same_members(PyObject* sequence, const std::vector<Ref>& expected) {
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
  if (static_cast<size_t>(size) != expected.size()) return false;
  PyObject** members = PySequence_Fast_ITEMS(sequence);
  for (Py_ssize_t i = 0; i < size; ++i)
    if (members[i] != expected[static_cast<size_t>(i)].get()) return false;
  return true;
}

// Whether `dictionary` holds these keys with these values, whatever else it holds. Its entries are walked in
// order, which is several times faster than to look keys up; only after a change, or in a large dictionary,
// each key is looked up.
bool same_names(PyObject* dictionary, const std::vector<Ref>& expected, std::vector<Ref>& seen) {
  if (!seen.empty() && same_items(dictionary, seen)) return true;
  for (size_t i = 0; i < expected.size(); i += 2) {
    PyObject* value = PyDict_GetItemWithError(dictionary, expected[i].get());
    if (!value && PyErr_Occurred()) PyErr_Clear();
    if (value != expected[i + 1].get()) return false;
  }
  if (static_cast<size_t>(PyDict_GET_SIZE(dictionary)) <= 2 * expected.size())  // four entries for each key
    seen = items_of(dictionary);
  return true;
}

// Whether the memory that `owner` exports holds the bytes of `expected`.
bool same_bytes(PyObject* owner, PyObject* expected) {
  Py_buffer now;
  if (PyObject_GetBuffer(owner, &now, PyBUF_CONTIG_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool same = now.len == PyBytes_GET_SIZE(expected) &&
                    !std::memcmp(now.buf, PyBytes_AS_STRING(expected), static_cast<size_t>(now.len));
  PyBuffer_Release(&now);
  return same;
}

// Whether a new reference is `expected`; an exception counts as a difference.
bool same_result(PyObject* result, PyObject* expected) {
  const bool same = result == expected;
  Py_XDECREF(result);
  if (!result) PyErr_Clear();
  return same;
}

bool unchanged(Watch& watch);

PyObject* pointer_at(PyObject* object, Py_ssize_t offset) {
  PyObject* pointer = nullptr;
  std::memcpy(&pointer, reinterpret_cast<const char*>(object) + offset, sizeof pointer);
  return pointer;
}

bool Entry::same() {
  switch (kind) {
    case Namespace:
      return same_names(owner.get(), expected_members, seen);
    case Items:
      return same_items(owner.get(), expected_members);
    case Members:
      return same_members(owner.get(), expected_members);
    case Cell:
      return PyCell_GET(owner.get()) == expected.get();
    case ClassAttribute:
      return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner.get()), key.get()) == expected.get();
    case Attribute:
      return same_result(PyObject_GetAttr(owner.get(), key.get()), expected.get());
    case Attributes:
      for (const Ref& object : expected_members)
        if (!same_result(get ? get(object.get(), closure) : PyObject_GetAttr(object.get(), key.get()),
                         expected.get()))
          return false;
      return true;
    case Fields:
      for (const Ref& object : expected_members)
        if (pointer_at(object.get(), field)) return false;
      return true;
    case Empty:
      for (const Ref& dictionary : expected_members)
        if (PyDict_GET_SIZE(dictionary.get())) return false;
      return true;
    case Bytes:
      return same_bytes(owner.get(), expected.get());
    case Tensors:
      for (size_t i = 0; i < places.size(); ++i) {
        if (i + 8 < places.size()) places[i + 8].prefetch();
        if (!places[i].same()) return false;
      }
      return true;
    case Call:
      return same_result(PyObject_CallNoArgs(owner.get()), expected.get());
    case Other:
      return unchanged(*watch);
  }
  return false;
}

class Watch {
 public:
  // The first entry from `start` on that is not what it was; -1 if there is none.
  int64_t changed(int64_t start) {
    for (size_t i = static_cast<size_t>(std::max<int64_t>(start, 0)); i < entries_.size(); ++i)
      if (!entries_[i].same()) return static_cast<int64_t>(i);
    return -1;
  }
  int64_t add(Entry entry) {
    entries_.push_back(std::move(entry));
    return static_cast<int64_t>(entries_.size()) - 1;
  }
  std::vector<Entry>& entries() { return entries_; }

 private:
  std::vector<Entry> entries_;
};

bool unchanged(Watch& watch) { return watch.changed(0) < 0; }

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

// Objects that keep a pointer `field` bytes inside, null now.
int64_t add_fields(Watch& w, const py::list& owners, Py_ssize_t field) {
  Entry entry = make_entry(Entry::Fields, py::none());
  entry.expected_members = references(owners);
  entry.field = field;
  for (const py::handle owner : owners)
    require(field > 0 && field + static_cast<Py_ssize_t>(sizeof(void*)) <= Py_TYPE(owner.ptr())->tp_basicsize,
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

// `capsules` hold tensor handles made by torch for this entry, which takes them over.
int64_t add_tensors(Watch& w, const py::list& owners, const py::list& capsules) {
  if (!TensorReader::get().complete())
    throw std::runtime_error("this torch lacks its stable C interface; AICF supports torch 2.11 to 2.13");
  Entry entry = make_entry(Entry::Tensors, owners);
  for (const py::handle capsule : capsules) {
    void* handle = PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr()));
    if (!handle) throw py::error_already_set();
    entry.places.emplace_back(handle);
  }
  return w.add(std::move(entry));
}

int64_t add_call(Watch& w, const py::object& function, const py::object& expected) {
  Entry entry = make_entry(Entry::Call, function);
  entry.expected = Ref(expected);
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
    if (pointer_at(owner.ptr(), offset) == value.ptr()) return offset;
  return 0;
}

// Accepts what entry `index` is now.
void accept(Watch& w, size_t index) {
  if (index >= w.entries().size()) throw py::index_error("no such entry");
  Entry& entry = w.entries()[index];
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
    case Entry::Fields:
    case Entry::Empty:
      break;  // what they expect is said when they are added
    case Entry::Bytes:
      entry.expected = Ref(py::bytes(py::reinterpret_steal<py::object>(PyBytes_FromObject(owner))));
      break;
    case Entry::Tensors:
      for (TensorPlace& place : entry.places) place.accept();
      break;
    case Entry::Call:
      entry.expected = Ref(py::reinterpret_steal<py::object>(PyObject_CallNoArgs(owner)));
      break;
    case Entry::Other:
      break;  // it accepts its own
  }
  if (PyErr_Occurred()) throw py::error_already_set();
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
  std::vector<Entry> entries;
  std::swap(entries, py::cast<Watch&>(py::handle(self)).entries());
  return 0;  // released here, once the watch no longer shows them
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
      .def("clear",
           [](Watch& w) {
             std::vector<Entry> entries;
             std::swap(entries, w.entries());
           })
      .def("add_namespace", &add_namespace)
      .def("add_items", &add_items)
      .def("add_members", &add_members)
      .def("add_cell", &add_cell)
      .def("add_class_attribute", &add_class_attribute)
      .def("add_attribute", &add_attribute)
      .def("add_bytes", &add_bytes)
      .def("add_attributes", &add_attributes)
      .def("add_fields", &add_fields)
      .def("add_empty", &add_empty)
      .def("add_tensors", &add_tensors)
      .def("add_call", &add_call)
      .def("add_watch", &add_watch)
      .def_static("find_field", &find_field)
      .def("__len__", [](Watch& w) { return w.entries().size(); });
}

}  // namespace aicf::bindings
