-- What scripts see of Lua and of the engine. They can change none of it: each table that they are shown is an empty one that
-- looks things up in another, which only this file holds.
--
-- Called once for each interpreter with functions of the engine (`native`), the tables that become globals (`tables`), and for
-- an interpreter of libraries the engine's table while one is loaded (`loading`).

local native, tables, loading = ...

tables.string, tables.table, tables.math, tables.coroutine = string, table, math, coroutine
tables.os = {clock = os.clock}

local getfenv, setfenv, getmetatable, setmetatable = getfenv, setfenv, getmetatable, setmetatable
local next, rawget, rawset, select, tostring, type = next, rawget, rawset, select, tostring, type
local pcall, xpcall, load, loadstring, resume = pcall, xpcall, load, loadstring, coroutine.resume
local byte, sub, unpack, tonumber, concat = string.byte, string.sub, unpack, tonumber, table.concat
local find, match, gmatch, gsub, rep = string.find, string.match, string.gmatch, string.gsub, string.rep
local newproxy = newproxy
local refuse, plain, raised, search = native.refuse, native.plain, native.raised, native.search

local globals = getfenv(0)
-- What each empty table shows.
local shown = {}

local function show(hidden)
  local empty = {}
  shown[empty] = hidden
  setmetatable(empty, {__index = hidden, __newindex = refuse, __metatable = false})
  return empty
end

-- Functions of this file must not give `globals` away: their own globals are what scripts see.
local seen = {}
local seen_metatable = {__index = globals, __newindex = refuse}
seen_metatable.__metatable = show({__index = native.missing, __newindex = refuse})
setmetatable(seen, seen_metatable)
shown[seen] = globals
setfenv(1, seen)
setfenv(0, seen)

-- Errors that functions of the engine throw become the values that scripts know, wherever they are caught.

local function caught(error)
  if type(error) == 'userdata' then error = plain(error) end
  return error
end

local function text_of(error)
  error = caught(error)
  if type(error) == 'table' then
    local text = error.err
    if type(text) == 'string' or type(text) == 'number' then return text end
  end
  return error
end

local function after_pcall(is_ok, ...)
  if is_ok then return true, ... end
  return false, text_of((...))
end

local function after_resume(is_ok, ...)
  if is_ok then return true, ... end
  return false, caught((...))
end

local function after_load(compiled, error)
  if compiled then return compiled end
  return nil, caught(error)
end

function globals.pcall(...)
  return after_pcall(pcall(...))
end

function globals.xpcall(run, handle)
  if type(handle) ~= 'function' then return xpcall(run, handle) end
  return xpcall(run, function(error) return handle(caught(error)) end)
end

function tables.coroutine.resume(...)
  return after_resume(resume(...))
end

local insert = tables.table.insert
function tables.table.insert(...)
  local changed, count = (...), select('#', ...)
  if shown[changed] then native.refused() end
  if type(changed) ~= 'table' then native.misused(1, 'insert', 'table', changed) end
  if count ~= 2 and count ~= 3 then native.failed("wrong number of arguments to 'insert'") end
  return insert(...)
end

-- Lua's own functions that match patterns recurse in C, and no hook runs in them. They are faster on short texts; whatever could be
-- too much for them, or is an error, goes to the engine's.

-- What is known of some short texts, so that it need not be found out at each call.
local known_max, known_bytes_max = 1000, 64

local function remember(find_out, otherwise)
  local known, count = {}, 0
  return setmetatable(known, {__index = function(_, text)
    if type(text) ~= 'string' or #text > known_bytes_max then return otherwise end
    local found = find_out(text)
    if count == known_max then
      for other in next, known do known[other] = nil end
      count = 0
    end
    count = count + 1
    known[text] = found
    return found
  end})
end

-- How long a text may be for Lua's own, by pattern.
local lengths = remember(search.harmless_len, -1)
-- Whether what is put in place of a match refers to nothing: a percent sign may stand for a capture that is not there.
local is_literal = remember(function(text) return not find(text, '%', 1, true) end, false)

function tables.string.find(...)
  local text, pattern, from = ...
  if type(text) == 'string' and #text <= lengths[pattern] and (from == nil or type(from) == 'number') then
    return find(...)
  end
  return search.find(...)
end

function tables.string.match(...)
  local text, pattern, from = ...
  if type(text) == 'string' and #text <= lengths[pattern] and (from == nil or type(from) == 'number') then
    return match(...)
  end
  return search.match(...)
end

function tables.string.gmatch(...)
  local text, pattern = ...
  -- Here the anchor is none.
  if type(text) == 'string' and #text <= lengths[pattern] and byte(pattern) ~= 94 then return gmatch(text, pattern) end
  text, pattern = search.gmatch_arguments(...)
  local next_from, step = 1, search.step
  local function go_on(first, last, ...)
    if not first then return end
    next_from = last < first and first + 1 or last + 1
    return ...
  end
  return function() return go_on(step(text, pattern, next_from)) end
end
tables.string.gfind = tables.string.gmatch

-- What replaces a match: nothing for the match itself.
local function replacement(replace, text, first, last, captured, ...)
  if not first then return end
  if captured == nil then captured = sub(text, first, last) end
  if type(replace) == 'table' then return first, last, replace[captured] end
  return first, last, (replace(captured, ...))
end

-- A function for Lua's own, which would tell a line of this file if a value cannot be put in place of a match.
local function checked(replace)
  if type(replace) == 'table' then
    local looked = replace
    replace = function(captured) return looked[captured] end
  end
  return function(...)
    local value = replace(...)
    if value then
      local kind = type(value)
      if kind ~= 'string' and kind ~= 'number' then native.unreplaceable(kind) end
    end
    return value
  end
end

function tables.string.gsub(...)
  local text, pattern, replace, count_max = ...
  local kind = type(replace)
  if type(text) == 'string' and #text <= lengths[pattern] and (count_max == nil or type(count_max) == 'number') then
    if kind == 'function' or kind == 'table' then return gsub(text, pattern, checked(replace), count_max) end
    if kind == 'string' and is_literal[replace] then return gsub(...) end
  end
  if kind ~= 'function' and kind ~= 'table' then return search.gsub(...) end
  local is_anchored
  text, pattern, is_anchored, count_max = search.gsub_arguments(...)
  local step = kind == 'table' and search.find_first or search.find_pattern
  local pieces, count, from, copied, len = {}, 0, 1, 1, #text
  while count < count_max and from <= len + 1 do
    local first, last, value = replacement(replace, text, step(text, pattern, from))
    if not first then break end
    count = count + 1
    if value then
      if type(value) ~= 'string' and type(value) ~= 'number' then
        native.failed('invalid replacement value (a ' .. type(value) .. ')')
      end
      pieces[#pieces + 1] = sub(text, copied, first - 1)
      pieces[#pieces + 1] = value
      copied = last + 1
    end
    from = last < first and first + 1 or last + 1
    if is_anchored then break end
  end
  pieces[#pieces + 1] = sub(text, copied)
  return concat(pieces), count
end

-- Sorting is quadratic for some orders. A comparison in Lua lets the hook run.
local sort = table.sort
local sorted_max = 4096

local function is_less(one, other)
  return one < other
end

function tables.table.sort(...)
  local sorted, compare = ...
  if type(sorted) ~= 'table' then native.misused(1, 'sort', 'table', sorted) end
  if compare == nil and #sorted > sorted_max then return sort(sorted, is_less) end
  return sort(...)
end

-- Lua's own takes a step for each repetition, also of nothing.
function tables.string.rep(...)
  local text, count = ...
  if type(text) == 'string' and type(count) == 'number' and count <= 1000 and #text * count <= 65536 then
    return rep(text, count)
  end
  return search.rep(...)
end

-- Compiled code is not loaded: it could be made to do anything. A space before it makes it text that is no Lua.

function globals.loadstring(text, name)
  if type(text) == 'string' and byte(text) == 27 then return loadstring(' ' .. text, name or text) end
  return loadstring(text, name)
end

function globals.load(read, name)
  if type(read) ~= 'function' then return load(read, name) end
  local is_first = true
  return after_load(load(function()
    local piece = read()
    if is_first and type(piece) == 'string' and piece ~= '' then
      is_first = false
      if byte(piece) == 27 then return ' ' .. piece end
    end
    return piece
  end, name))
end

-- Lua's own counts its results in 32 bits, and does not notice when that is not enough.
local results_max = 8000

function globals.unpack(list, first, last)
  if type(list) ~= 'table' then native.misused(1, 'unpack', 'table', list) end
  local from, to = first, last
  if first == nil then from = 1 else from = tonumber(first) end
  if last == nil then to = #list else to = tonumber(last) end
  if not from then native.misused(2, 'unpack', 'number', first) end
  if not to then native.misused(3, 'unpack', 'number', last) end
  if from > to then return end
  if not (to - from < results_max) then native.failed('too many results to unpack') end
  -- What it is called with takes room of its results.
  if first == nil and last == nil then return unpack(list) end
  return unpack(list, from, to)
end

function globals.pairs(walked)
  local hidden = shown[walked]
  if hidden then
    local copy = {}
    for key, value in next, hidden do copy[key] = value end
    return next, copy, nil
  end
  if type(walked) ~= 'table' then native.misused(1, 'pairs', 'table', walked) end
  return next, walked, nil
end

-- A finalizer would run within the collection of garbage, where no hook runs, and after the script.
local proxied = setmetatable({}, {__mode = 'k'})
local proxied_metatable = {
  __newindex = function(changed, key, value)
    if key == '__gc' then native.failed('__gc is not available to scripts') end
    rawset(changed, key, value)
  end,
  __metatable = false,
}

function globals.newproxy(kind)
  local proxy = newproxy(kind)
  if kind == true then
    local metatable = getmetatable(proxy)
    proxied[metatable] = true
    setmetatable(metatable, proxied_metatable)
  end
  return proxy
end

function globals.rawget(looked, key)
  return rawget(shown[looked] or looked, key)
end

function globals.rawset(changed, key, value)
  if shown[changed] then native.refused() end
  if type(changed) ~= 'table' then native.misused(1, 'rawset', 'table', changed) end
  if key == '__gc' and proxied[changed] then native.failed('__gc is not available to scripts') end
  return rawset(changed, key, value)
end

-- What cannot be changed hides that it has one.
function globals.getmetatable(...)
  local metatable = getmetatable(...)
  if metatable == false then return nil end
  return metatable
end

function globals.setmetatable(changed, metatable)
  if shown[changed] then native.refused() end
  if type(changed) ~= 'table' then native.misused(1, 'setmetatable', 'table', changed) end
  if metatable ~= nil and type(metatable) ~= 'table' then native.misused(2, 'setmetatable', 'nil or table expected') end
  return setmetatable(changed, metatable)
end

-- The globals of the interpreter itself, level 0, stay as they are.
function globals.setfenv(changed, environment)
  if type(changed) == 'number' and changed >= 1 then
    changed = changed + 1
  elseif changed == 0 or changed == '0' then
    native.misused(1, 'setfenv', 'level must not be 0')
  end
  local done = setfenv(changed, environment)
  return done
end

globals.dofile, globals.loadfile, globals.print = nil, nil, nil

for name, hidden in next, tables do globals[name] = show(hidden) end
globals.redis = globals.server
globals._G = seen
setmetatable(globals, {__index = native.missing})

local strings = getmetatable('')
strings.__index = globals.string
strings.__metatable = show({__index = globals.string})

local loading_globals
if loading then
  loading_globals = {server = show(loading)}
  loading_globals.redis = loading_globals.server
  setmetatable(loading, {__index = native.missing})
  setmetatable(loading_globals, {__index = native.missing})
end

local function explain(error)
  local source, line = raised()
  error = caught(error)
  if type(error) ~= 'table' then error = {err = 'ERR ' .. tostring(error)} end
  if source then
    error.source = source
    error.line = line
  end
  return error
end

-- What the engine calls.
return {
  globals = globals,
  -- Runs a function of a script. Says whether it came to its end, and what it returned or threw.
  run = function(run, keys, arguments)
    return xpcall(function() return run(keys, arguments) end, explain)
  end,
  -- Runs a library while it registers its functions.
  load = function(run)
    seen_metatable.__index = loading_globals
    local is_ok, error = pcall(run)
    seen_metatable.__index = globals
    return is_ok, caught(error)
  end,
  -- A script may have put something into the empty tables by ways around `__newindex`.
  clean = function()
    for empty in next, shown do
      while next(empty) ~= nil do rawset(empty, next(empty), nil) end
    end
  end,
}
