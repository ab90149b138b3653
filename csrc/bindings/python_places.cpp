// The places themselves: what is in each at first, what at last, and which the trace has made itself.
#include "bindings/python_places.h"

#include <structmember.h>

namespace aicf::python {
namespace {

const char* const kNames[] = {"item",    "class", "slot",   "cell",    "content",
                              "context", "code",  "object", "setting", "opaque"};

PyTypeObject* deque_type() {
  static PyObject* type = [] {
    Owned collections = Owned::steal(PyImport_ImportModule("collections"));
    return PyObject_GetAttrString(collections.get(), "deque");
  }();
  return (PyTypeObject*)type;
}

// A key whose hash and equality are Python's own.
bool is_plain_key(PyObject* k) {
  return PyUnicode_CheckExact(k) || PyLong_CheckExact(k) || PyFloat_CheckExact(k) || PyBytes_CheckExact(k) ||
         PyBool_Check(k) || k == Py_None || PyType_Check(k);
}

// The keys and values of an ordered dictionary, which keeps an order of its own.
Owned ordered_content(PyObject* o) {
  Owned items = Owned::steal(PyObject_CallMethod((PyObject*)&PyODict_Type, "items", "O", o));
  Owned pairs = Owned::steal(items.get() ? PySequence_Tuple(items.get()) : nullptr);
  if (!pairs.get()) return PyErr_Clear(), Owned();
  const Py_ssize_t size = PyTuple_GET_SIZE(pairs.get());
  PyObject* all = PyTuple_New(2 * size);
  for (Py_ssize_t i = 0; i < 2 * size; i++)
    PyTuple_SET_ITEM(all, i, Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs.get(), i / 2), i % 2)));
  return Owned::steal(all);
}

}  // namespace

Places& Places::get() {
  static Places* places = new Places;  // never destroyed: Python is gone by then
  return *places;
}

void Places::begin(Types types) {
  types_ = std::move(types);
  keys_ = Owned::steal(PyDict_New());
  known_.clear();
  places_.clear();
  plain_.clear();
  spot_ = {};
}

bool Places::is_array(PyObject* o) const {
  PyBufferProcs* buffer = Py_TYPE(o)->tp_as_buffer;  // a subclass may bring a method of its own
  for (Py_ssize_t i = 0; buffer && i < PyTuple_GET_SIZE(types_.arrays.get()); i++) {
    auto* base = (PyTypeObject*)PyTuple_GET_ITEM(types_.arrays.get(), i);
    if (PyObject_TypeCheck(o, base)) return buffer->bf_getbuffer == base->tp_as_buffer->bf_getbuffer;
  }
  return false;
}

bool Places::is_container(PyObject* o) const {
  return PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || PyObject_TypeCheck(o, deque_type()) ||
         is_array(o);
}

bool Places::is_opaque(PyObject* o) const {
  static PyObject* next_name = PyUnicode_InternFromString("__next__");
  PyObject* next = Py_TYPE(o)->tp_iternext ? _PyType_Lookup(Py_TYPE(o), next_name) : nullptr;
  if (next && !PyFunction_Check(next)) return !PyGen_CheckExact(o);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types_.opaque.get()); i++)
    if (PyObject_TypeCheck(o, (PyTypeObject*)PyTuple_GET_ITEM(types_.opaque.get(), i))) return true;
  return false;
}

// A lookup asks the keys of a dictionary whose hash is the same, so it is made only where all keys are plain;
// otherwise the very object is sought.
PyObject* Places::found(PyObject* dict, PyObject* key) const {
  auto [known, is_new] = plain_.try_emplace(dict, -1, false);
  auto& [size, is_plain] = known->second;
  PyObject *each, *value;
  Py_ssize_t at = 0;
  if (is_new || size != PyDict_GET_SIZE(dict)) {
    size = PyDict_GET_SIZE(dict);
    is_plain = true;
    while (is_plain && PyDict_Next(dict, &at, &each, &value)) is_plain = is_plain_key(each);
  }
  if (is_plain) {
    PyObject* there = PyDict_GetItemWithError(dict, key);
    if (!there) PyErr_Clear();
    return there;
  }
  for (at = 0; PyDict_Next(dict, &at, &each, &value);)
    if (each == key ||
        (PyUnicode_CheckExact(each) && PyUnicode_CheckExact(key) && PyUnicode_Compare(each, key) == 0))
      return value;
  return nullptr;
}

// The content of a container as a tuple, read by the C functions of the container's own kind.
Owned Places::content(PyObject* o) const {
  if (PyList_Check(o)) return Owned::steal(PyList_AsTuple(o));
  if (PyODict_Check(o)) return ordered_content(o);
  if (PyDict_Check(o)) {
    PyObject *key, *value, *all = PyTuple_New(2 * PyDict_GET_SIZE(o));
    Py_ssize_t at = 0, n = 0;
    while (PyDict_Next(o, &at, &key, &value)) {
      PyTuple_SET_ITEM(all, n++, Py_NewRef(key));
      PyTuple_SET_ITEM(all, n++, Py_NewRef(value));
    }
    return Owned::steal(all);
  }
  if (is_array(o)) {
    Py_buffer view;
    if (PyObject_GetBuffer(o, &view, PyBUF_FULL_RO) < 0) return PyErr_Clear(), Owned();
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, view.len);
    if (PyBuffer_ToContiguous(PyBytes_AS_STRING(bytes), &view, view.len, 'C') < 0) PyErr_Clear();
    PyBuffer_Release(&view);
    return Owned::steal(bytes);
  }
  PyTypeObject* base =
      PyAnySet_Check(o) ? (PyFrozenSet_Check(o) ? &PyFrozenSet_Type : &PySet_Type) : deque_type();
  Owned iterator = Owned::steal(base->tp_iter(o)), all = Owned::steal(PyList_New(0));
  while (PyObject* each = Py_TYPE(iterator.get())->tp_iternext(iterator.get())) {
    PyList_Append(all.get(), each);
    Py_DECREF(each);
  }
  PyErr_Clear();
  return Owned::steal(PyList_AsTuple(all.get()));
}

// What is there now; null for nothing.
Owned Places::peek(Kind kind, PyObject* owner, PyObject* key) const {
  PyObject* there = nullptr;
  switch (kind) {
    case kItem:
      return Owned::to(found(owner, key));
    case kClass:
      return Owned::to(_PyType_Lookup((PyTypeObject*)owner, key));
    case kCell:
      return Owned::to(PyCell_GET(owner));
    case kContent:
      return content(owner);
    case kContext:
      if (PyContextVar_Get(owner, nullptr, &there) < 0) PyErr_Clear();
      return Owned::steal(there);
    case kSlot: {
      PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), key);
      if (!descriptor || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return {};
      there = PyMember_GetOne((char*)owner, ((PyMemberDescrObject*)descriptor)->d_member);
      if (!there) PyErr_Clear();
      return Owned::steal(there);
    }
    case kCode: {
      PyObject *defaults = PyFunction_GET_DEFAULTS(owner), *by_name = PyFunction_GET_KW_DEFAULTS(owner);
      return Owned::steal(PyTuple_Pack(3, PyFunction_GET_CODE(owner), defaults ? defaults : Py_None,
                                       by_name ? by_name : Py_None));
    }
    case kObject:
      return Owned::to((PyObject*)Py_TYPE(owner));
    case kSetting:
    case kOpaque:
      break;
  }
  return {};
}

void Places::note(Kind kind, PyObject* owner, PyObject* key, Use use, PyObject* holder) {
  const bool write = use != Use::kReads;
  auto [known, is_new] = known_.try_emplace(Id{kind, owner, key}, places_.size());
  if (is_new) {
    Owned first = peek(kind, owner, key);
    places_.push_back({kind,
                       Owned::to(owner),
                       Owned::to(key),
                       Owned::to(holder),
                       std::move(first),
                       {},
                       {},
                       0,
                       false,
                       false,
                       false,
                       false});
  }
  Place& place = places_[known->second];
  if (is_new || (write && !place.written)) {
    place.code = Owned::to(spot_.code);
    place.offset = spot_.offset;
  }
  place.read_first = place.read_first || (!write && !place.set);
  place.read_after = place.read_after || (!write && place.set);
  place.written = place.written || write;
  place.set = place.set || use == Use::kSets;
}

void Places::item(PyObject* dict, PyObject* key, Use use, PyObject* holder) {
  if (!is_plain_key(key)) return note(kContent, dict, nullptr, use == Use::kReads ? use : Use::kAdds, holder);
  PyObject* one = PyDict_SetDefault(keys_.get(), key, key);
  // 1, 1.0 and True are one key
  note(kItem, dict, one ? one : key, use, holder);
}

void Places::end() {
  for (Place& p : places_)
    if (!p.after) p.after = peek(p.kind, p.owner.get(), p.key.get());
}

// An object that nobody else holds was made by the trace, and goes; with it may go others that it held.
void Places::drop_dead() {
  known_.clear();
  plain_.clear();
  std::unordered_map<PyObject*, std::vector<Owned*>> held;  // by object: where it is kept here
  std::unordered_map<PyObject*, std::vector<size_t>> owned;
  for (size_t i = 0; i < places_.size(); i++) {
    held[places_[i].owner.get()].push_back(&places_[i].owner);
    if (places_[i].holder) held[places_[i].holder.get()].push_back(&places_[i].holder);
    owned[places_[i].owner.get()].push_back(i);
  }
  for (bool again = true; again;) {
    again = false;
    for (auto each = held.begin(); each != held.end();) {
      auto& [object, references] = *each;
      if (Py_REFCNT(object) > (Py_ssize_t)references.size()) {
        ++each;
        continue;
      }
      again = true;
      for (size_t i : owned[object]) {  // what is kept of its places goes as well
        Place& place = places_[i];
        place.first = Owned();
        place.after = Owned();
      }
      for (Owned* reference : references) *reference = Owned();
      each = held.erase(each);
    }
  }
}

PyObject* Places::owners() const {
  Owned all = Owned::steal(PyList_New(0));
  for (const Place& p : places_)
    if (PyList_Append(all.get(), p.owner.get()) < 0) return nullptr;
  return Py_NewRef(all.get());
}

PyObject* Places::taken(PyObject* absent) {
  drop_dead();
  Owned all = Owned::steal(PyList_New(0));
  auto or_absent = [&](const Owned& value) { return value ? value.get() : absent; };
  std::vector<Place> places = std::exchange(places_, {});
  for (Place& p : places) {
    if (!p.owner) continue;
    Owned row = Owned::steal(
        Py_BuildValue("(sOOOOOOOOOi)", kNames[p.kind], p.owner.get(), p.key ? p.key.get() : Py_None,
                      p.holder ? p.holder.get() : Py_None, or_absent(p.first), or_absent(p.after),
                      p.read_first ? Py_True : Py_False, p.read_after ? Py_True : Py_False,
                      p.written ? Py_True : Py_False, p.code ? p.code.get() : Py_None, p.offset));
    if (!row || PyList_Append(all.get(), row.get()) < 0) return nullptr;
  }
  begin({});
  return Py_NewRef(all.get());
}

}  // namespace aicf::python
