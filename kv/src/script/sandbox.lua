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
local byte, unpack, tonumber = string.byte, unpack, tonumber
local refuse, plain, raised = native.refuse, native.plain, native.raised

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

function globals.rawget(looked, key)
  return rawget(shown[looked] or looked, key)
end

function globals.rawset(changed, key, value)
  if shown[changed] then native.refused() end
  if type(changed) ~= 'table' then native.misused(1, 'rawset', 'table', changed) end
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
