import path from 'node:path'
import { expect, test } from 'vitest'
import { readSource, type SourceFile } from './source-files'

/** Folders of the core from the bottom up. What lies in `src` itself is public names, but for the errors, below all. */
const CORE = 'errors options text library sql triggers registry schema typeorm connection calls declare core'.split(' ')

/** A room for each feature. None imports from another, and each may be taken away without the others. */
const FEATURES = ['typeorm-calls', 'url', 'stream', 'names', 'once', 'numbers']

/** A room for each tool, from the bottom up. */
const TOOLS = ['adopt', 'doctor', 'cli']

const files = await readSource(path.resolve(import.meta.dirname, '../../src'))

test('every file lies in a layer', () => {
  expect(files.length).toBeGreaterThan(40)
  expect(files.filter(({ layer }) => rank(layer) === -1).map(({ name }) => name)).toEqual([])
})

test('a tool imports from features and the core, a feature from the core, a layer of the core from those below', () => {
  const upward = edges().filter(({ from, to }) => from.layer !== to.layer && rank(from.layer) <= rank(to.layer))
  expect(upward.map(({ from, to }) => `${from.name} → ${to.name}`)).toEqual([])
})

test('no import leads nowhere or goes through the barrel of the package', () => {
  const names = new Set(files.map(({ name }) => name))
  const relative = files.flatMap((file) => file.imports.filter(isRelative).map((to) => [file.name, resolve(file, to)]))
  expect(relative.filter(([, to = '']) => !names.has(to))).toEqual([])
  expect(relative.filter(([from, to]) => to === 'index' && from !== 'index.mts')).toEqual([])
})

test('no imports form a cycle, not even those of types', () => {
  let left = edges()
  // What imports nothing that is left, or is imported by nothing that is left, is no part of a circle.
  for (let before = Infinity; left.length < before;) {
    before = left.length
    const [importing, imported] = [new Set(left.map(({ from }) => from)), new Set(left.map(({ to }) => to))]
    left = left.filter(({ from, to }) => importing.has(to) && imported.has(from))
  }
  expect(left.map(({ from, to }) => `${from.name} → ${to.name}`)).toEqual([])
})

// A rename once made "WorkRun the same command" of a sentence that begins with Run.
test('no sentence holds the name of an internal type', () => {
  const shown = new Set(
    files
      .filter(({ name }) => name.endsWith('index'))
      .flatMap(({ names }) => names.map(({ exportedAs }) => exportedAs)),
  )
  const types = files.flatMap((file) => file.exports).filter((name) => /^[A-Z][a-z]+[A-Z]/u.test(name))
  const internal = new Set(types.filter((name) => !shown.has(name)))
  expect(internal.size).toBeGreaterThan(100)
  const found = files.flatMap(({ name, strings }) =>
    strings
      .filter((one) => one.includes(' ') && one.match(/\b[A-Z]\w+/gu)?.some((word) => internal.has(word)))
      .map((one) => `${name}: ${one}`),
  )
  expect(found).toEqual([])
})

/** What the command line takes of other features without their entries. */
const ALLOWED: readonly string[] = ['stream/flow', 'adopt/options', 'doctor/doctor']

/** Decorators of features: they tell the core's layers what to make, as the core's own decorator does. */
const DECORATORS: readonly string[] = ['names/unique-name', 'numbers/number-within']

/** A step of an adoption lies beside the SQL that it sends. */
const isSql = (name: string): boolean => /^(?:library|sql|triggers|adopt)\/|^[\w-]+\/sql(?:\/|$)/u.test(name)

test('a feature stands on src/core, errors, options, text and public entries; its decorators and SQL, on all layers', () => {
  const wrong = seam().filter(
    ({ to: { name, layer } }) =>
      !['core/index', 'errors', 'options', 'adopt/index', 'doctor/index', 'numbers/index', ...ALLOWED].includes(name) &&
      layer !== 'text',
  )
  expect(wrong.map(({ from, to }) => `${from.name} → ${to.name}`)).toEqual([])
})

test('features take no more than 40 names that are not public', () => {
  const entries = files.filter(({ name }) => /^(?:\w|-)+(?:\/index)?$/u.test(name) && !name.startsWith('core/'))
  const open = new Set(entries.flatMap((entry) => exportsOf(entry)))
  const taken = seam().flatMap(({ to, names }) => names.map((name) => originOf(to, name)))
  const internal = [...new Set(taken)].filter((name) => !open.has(name) && !name.startsWith('errors '))
  expect(taken.filter((one) => one.endsWith('*'))).toEqual([])
  expect(internal.sort().slice(40)).toEqual([])
})

interface Crossing {
  readonly from: SourceFile
  readonly to: SourceFile
  readonly names: readonly string[]
}

/** What files of features and of the command line import of other folders. */
function seam(): Crossing[] {
  return edges().flatMap(({ from, to }) => {
    if (![...FEATURES, 'cli'].includes(from.layer) || to.layer === from.layer) return []
    if (DECORATORS.includes(from.name) || isSql(from.name)) return []
    return [
      { from, to, names: from.names.filter((one) => resolve(from, one.from) === to.name).map(({ name }) => name) },
    ]
  })
}

/** The file that declares a name which another one exports, and the name there. */
function originOf(file: SourceFile, name: string): string {
  const passed = file.names.find(({ exportedAs }) => exportedAs === name)
  const to = passed && files.find((one) => one.name === resolve(file, passed.from))
  return to ? originOf(to, passed.name) : `${file.name} ${name}`
}

/** What an entry exports from elsewhere. */
const exportsOf = (entry: SourceFile): string[] =>
  entry.names.flatMap(({ exportedAs }) => (exportedAs === undefined ? [] : [originOf(entry, exportedAs)]))

const SQL =
  /\b(?:SELECT|INSERT INTO|DELETE FROM|TRUNCATE|SAVEPOINT|UPDATE .* SET|(?:CREATE|ALTER|DROP|ADD) (?:\w+ )?(?:TABLE|COLUMN|TRIGGER|FUNCTION|INDEX))\b/su

test("only src/sql, src/triggers, src/adopt and a room's own sql hold SQL", () => {
  const elsewhere = files.filter(({ name }) => !isSql(name))
  const found = elsewhere.flatMap(({ name, strings }) =>
    strings.filter((text) => SQL.test(text)).map((text) => `${name}: ${text.slice(0, 60)}`),
  )
  expect(found).toEqual([])
})

// Deep paths do not resolve under ESM, nor with the types of node16.
test('TypeORM is imported from its root only, and nothing else is but Node.js itself', () => {
  const others = files.flatMap(({ name, imports }) =>
    imports.filter((to) => !isRelative(to) && !to.startsWith('node:') && to !== 'typeorm').map((to) => [name, to]),
  )
  // Bundled into the build, for it is ESM only.
  expect(others).toEqual([['text/normalize-url', 'normalize-url']])
})

const isRelative = (specifier: string): boolean => specifier.startsWith('.')

function rank(layer: string): number {
  return [...CORE.map((one) => [one]), FEATURES, ...TOOLS.map((one) => [one]), ['index']].findIndex((one) =>
    one.includes(layer),
  )
}

function resolve({ name }: SourceFile, specifier: string): string {
  const target = path.posix.join(path.posix.dirname(name), specifier.replace(/\.js$/u, ''))
  return files.some((file) => file.name === target) ? target : path.posix.join(target, 'index')
}

function edges(): { from: SourceFile; to: SourceFile }[] {
  const byName = new Map(files.map((file) => [file.name, file]))
  return files.flatMap((from) =>
    from.imports.filter(isRelative).flatMap((specifier) => {
      const to = byName.get(resolve(from, specifier))
      return to ? [{ from, to }] : []
    }),
  )
}

test('no name is declared and exported by two files', () => {
  const places = new Map<string, string[]>()
  for (const { name, exports } of files)
    for (const one of new Set(exports)) places.set(one, [...(places.get(one) ?? []), name])
  expect(places.size).toBeGreaterThan(1_000)
  expect([...places].filter(([, [, second]]) => second !== undefined)).toEqual([])
})

test('no file has more than 900 lines', () => {
  expect(files.filter(({ lines }) => lines > 900).map(({ name, lines }) => `${name}: ${lines}`)).toEqual([])
})

test('half of the functions have at most 10 lines, nine of ten at most 25, none more than 80', () => {
  const functions = files.flatMap((file) => file.functions).sort((left, right) => left.lines - right.lines)
  const at = (share: number): number => functions[Math.ceil(functions.length * share) - 1]?.lines ?? NaN
  expect(functions.length).toBeGreaterThan(200)
  expect(functions.filter(({ lines }) => lines > 80)).toEqual([])
  expect(at(0.5), 'the median').toBeLessThanOrEqual(10)
  expect(at(0.9), 'nine of ten').toBeLessThanOrEqual(25)
})
