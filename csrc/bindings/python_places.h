// What Python's bytecode reads and writes while a step is traced: every place it looks in, with what was
// there first. Only Python's own headers: the four files python_*.cpp build without the rest of AICF.
//
// Places are looked up by dictionaries and types. No method of a user's object is ever called.
#pragma once
#include <Python.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace aicf::python {

enum Kind { kItem, kClass, kSlot, kCell, kContent, kContext, kCode, kObject, kSetting, kOpaque };

// What an instruction does to a place. To add to a container is to write, but what was there stays and may be
// read.
enum class Use { kReads, kAdds, kSets };

// An owned reference.
class Owned {
 public:
  Owned() = default;
  static Owned to(PyObject* borrowed) { return Py_XINCREF(borrowed), Owned(borrowed); }
  static Owned steal(PyObject* owned) { return Owned(owned); }
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Owned(PyObject* owned) : object_(owned) {}
  PyObject* object_ = nullptr;
};

// Where the instruction is that runs: a code object, and bytes from its start.
struct Spot {
  PyObject* code = nullptr;
  int offset = 0;
};

struct Place {
  Kind kind;
  Owned owner;
  Owned key;        // or null
  Owned holder;     // of a dictionary: the object whose attributes it has; or null
  Owned first;      // what was there at first; null: nothing
  Owned after;      // and when the step was over, likewise
  Owned code;       // whose instruction looked first, or wrote first; or null
  int offset = 0;   // of that instruction
  bool read_first;  // whether the step has read what was there before it wrote something else there
  bool written;
  bool set;         // whether nothing of what was there at first is left
  bool read_after;  // whether the step has read what it had put there in place of that
};

// What a place is known by.
struct Id {
  Kind kind;
  const void *owner, *key;
  bool operator==(const Id& o) const { return kind == o.kind && owner == o.owner && key == o.key; }
};
struct Hash {
  size_t operator()(const Id& i) const {
    return (reinterpret_cast<size_t>(i.owner) * 31 + reinterpret_cast<size_t>(i.key)) * 31 + i.kind;
  }
};

// Types that the caller knows.
struct Types {
  Owned tensor;  // torch.Tensor: what a tensor holds is torch's affair
  Owned opaque;  // a tuple: nobody can see what they hold
  Owned arrays;  // a tuple: memory is their content
};

class Places {
 public:
  static Places& get();
  void begin(Types types);
  // `spot`: where notes come from, from now on.
  void at(PyObject* code, int offset) { spot_ = {code, offset}; }
  void note(Kind kind, PyObject* owner, PyObject* key, Use use = Use::kReads, PyObject* holder = nullptr);
  // One entry of a dictionary, that of `holder`; its whole content for a key whose equality is not Python's
  // own.
  void item(PyObject* dict, PyObject* key, Use use, PyObject* holder = nullptr);
  // Whether a dictionary has an entry under a plain key.
  bool has(PyObject* dict, PyObject* key) const { return found(dict, key) != nullptr; }
  // The step is over: what is in each place now, before the tracer puts anything back.
  void end();
  // Every place, as (kind, owner, key, holder, first or absent, after or absent, read first, written, code,
  // offset); none is known afterwards. What only the trace has made is left out.
  PyObject* owners() const;
  PyObject* taken(PyObject* absent);

  bool is_tensor(PyObject* o) const { return PyObject_TypeCheck(o, (PyTypeObject*)types_.tensor.get()); }
  bool is_opaque(PyObject* o) const;
  bool is_array(PyObject* o) const;
  bool is_container(PyObject* o) const;

 private:
  Owned peek(Kind kind, PyObject* owner, PyObject* key) const;
  Owned content(PyObject* o) const;
  // What a dictionary has under a plain key, borrowed; or null.
  PyObject* found(PyObject* dict, PyObject* key) const;
  void drop_dead();

  std::vector<Place> places_;
  std::unordered_map<Id, size_t, Hash> known_;
  Owned keys_;  // a dictionary: one object for each key
  mutable std::unordered_map<PyObject*, std::pair<Py_ssize_t, bool>> plain_;  // see found
  Types types_;
  Spot spot_;
};

// What an instruction looks at: the kinds of places behind it.
void note_attribute(PyObject* o, PyObject* name, Use use);
// `super().name`, looked up behind `type`.
void note_super(PyObject* type, PyObject* self, PyObject* name);
// `dict[key]`, and the same of any other container.
void note_member(PyObject* container, PyObject* key, Use use);
// What a function in C, an operator or a test is given.
void note_used(PyObject* o);
// What a test is given, which takes nothing from an iterator.
void note_tested(PyObject* o);
// `with o:`
void note_manager(PyObject* o);
// A call of whatever is not a function of Python: those are noted where they begin.
void note_call(PyObject* callable, PyObject* const* arguments, Py_ssize_t n);

// The functions of Python by which a caller records: see aicf_mlir/_C.pyi.
int add_functions(PyObject* module);

}  // namespace aicf::python
