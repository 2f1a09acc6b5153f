import { createRequire } from 'node:module'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { Session } from 'node:inspector/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { Client } from 'pg'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import ts from 'typescript'
import { createDatabase, dropDatabase, inDatabase } from '../test/support/databases'
import { findServer } from '../test/support/postgres'

// Prints the figures by which a reader's effort is judged.
const ROOT = path.resolve(import.meta.dirname, '..')
const FEATURES = ['names', 'numbers', 'once', 'stream', 'url', 'typeorm-calls']
const TOOLS = ['adopt', 'doctor', 'cli']

type Figures = Record<string, number | string>

interface Source {
  /** Relative to src, with `/`. */
  readonly file: string
  readonly lines: number
  readonly syntax: ts.SourceFile
}

async function filesBelow(folder: string, ending = ''): Promise<string[]> {
  const entries = await readdir(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile() && entry.name.endsWith(ending))
  return files.map((entry) => path.join(entry.parentPath, entry.name)).sort()
}

const linesIn = (text: string): number => text.split('\n').length - 1

async function linesBelow(folder: string): Promise<number> {
  const files = (await filesBelow(folder)).filter((file) => path.basename(file) !== 'package-lock.json')
  return linesIn((await Promise.all(files.map(async (file) => await readFile(file, 'utf8')))).join(''))
}

/** Counts the words of README and docs, without code and comments. */
async function wordsOfDocuments(): Promise<number> {
  const files = [path.join(ROOT, 'README.md'), ...(await filesBelow('docs', '.md'))]
  const texts = await Promise.all(files.map(async (file) => await readFile(file, 'utf8')))
  const prose = texts.join('\n').replaceAll(/^ *```.*?^ *```$|<!--.*?-->/gmsu, '')
  return prose.match(/\S*[\p{L}\p{N}]\S*/gu)?.length ?? 0
}

async function readSources(): Promise<Source[]> {
  return await Promise.all(
    (await filesBelow('src', '.ts')).map(async (absolute) => {
      const text = await readFile(absolute, 'utf8')
      const file = path.relative(path.join(ROOT, 'src'), absolute).replaceAll(path.sep, '/')
      const syntax = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true)
      return { file, lines: linesIn(text), syntax }
    }),
  )
}

function sizes(sources: readonly Source[]): Figures {
  const sumOf = (isIn: (folder: string) => boolean): string => {
    const some = sources.filter(({ file }) => isIn(file.split('/')[0] ?? ''))
    return `${some.reduce((sum, { lines }) => sum + lines, 0)} in ${some.length} files`
  }
  return {
    'src, lines': sumOf(() => true),
    '  core, lines': sumOf((folder) => ![...FEATURES, ...TOOLS].includes(folder)),
    '  features, lines': sumOf((folder) => FEATURES.includes(folder)),
    '  tools, lines': sumOf((folder) => TOOLS.includes(folder)),
  }
}

function topLevelNames({ statements }: ts.SourceFile) {
  return statements.flatMap((statement) => {
    const isExported =
      ts.canHaveModifiers(statement) &&
      ts.getModifiers(statement)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) === true
    if (ts.isVariableStatement(statement)) {
      return statement.declarationList.declarations.flatMap(({ name, initializer }) => {
        const isFunction = initializer !== undefined && ts.isFunctionLike(initializer)
        return ts.isIdentifier(name) ? [{ name: name.text, isExported, isFunction }] : []
      })
    }
    if (ts.isFunctionDeclaration(statement)) {
      // Overloads are one name.
      const { name, body } = statement
      return name && body ? [{ name: name.text, isExported, isFunction: true }] : []
    }
    const isType = ts.isInterfaceDeclaration(statement) || ts.isTypeAliasDeclaration(statement)
    const name = isType || ts.isClassDeclaration(statement) ? statement.name : undefined
    return name ? [{ name: name.text, isExported, isFunction: false }] : []
  })
}

/** Counts the identifiers of a file, its own declarations among them. */
function identifiersOf(syntax: ts.SourceFile): Map<string, number> {
  const found = new Map<string, number>()
  const visit = (node: ts.Node): void => {
    const { parent } = node
    const isMember =
      parent && (ts.isPropertyAccessExpression(parent) || ts.isPropertyAssignment(parent)) && parent.name === node
    if (ts.isIdentifier(node) && !isMember) found.set(node.text, (found.get(node.text) ?? 0) + 1)
    ts.forEachChild(node, visit)
  }
  visit(syntax)
  return found
}

function names(sources: readonly Source[]): Figures {
  const files = new Map<string, Set<string>>()
  let [all, privateFunctions, oneCaller] = [0, 0, 0]
  for (const { file, syntax } of sources) {
    const identifiers = identifiersOf(syntax)
    for (const { name, isExported, isFunction } of topLevelNames(syntax)) {
      all++
      files.set(name, (files.get(name) ?? new Set()).add(file))
      if (isExported || !isFunction) continue
      privateFunctions++
      // Its declaration, and one use.
      if (identifiers.get(name) === 2) oneCaller++
    }
  }
  return {
    'top-level names': all,
    'names in several files': [...files.values()].filter(({ size }) => size > 1).length,
    'private functions': privateFunctions,
    '  with one caller': oneCaller,
  }
}

/** Counts the files of which each imports itself by way of others; types too. */
function cycles(sources: readonly Source[]): Figures {
  const known = new Set(sources.map(({ file }) => file))
  const imports = new Map(
    sources.map(({ file, syntax }) => {
      const specifiers = syntax.statements.flatMap((statement) => {
        const from =
          ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement) ? statement.moduleSpecifier : undefined
        return from && ts.isStringLiteral(from) && from.text.startsWith('.') ? [from.text] : []
      })
      const targets = specifiers.map((specifier) => path.posix.join(path.posix.dirname(file), specifier))
      return [file, targets.flatMap((to) => [`${to}.ts`, `${to}/index.ts`].filter((one) => known.has(one)))]
    }),
  )
  const reaches = (from: string): boolean => {
    const seen = new Set<string>()
    const left = [...(imports.get(from) ?? [])]
    for (let to = left.pop(); to !== undefined; to = left.pop()) {
      if (to === from) return true
      if (!seen.has(to)) left.push(...(imports.get(to) ?? []))
      seen.add(to)
    }
    return false
  }
  return { 'files in import cycles': [...known].filter(reaches).length }
}

/** The sources as CommonJS, file by file: what is published has fewer files, and a getter for each export. */
const COMPILED = path.join(ROOT, '.figures')
const load = createRequire(import.meta.url)
const library = () => ({
  ...(load(COMPILED) as typeof import('../src')),
  ...(load(path.join(COMPILED, 'names')) as typeof import('../src/names')),
  ...(load(path.join(COMPILED, 'numbers')) as typeof import('../src/numbers')),
})

async function compile(sources: readonly Source[]): Promise<void> {
  const compilerOptions = {
    module: ts.ModuleKind.CommonJS,
    target: ts.ScriptTarget.ES2022,
    experimentalDecorators: true,
  }
  for (const { file, syntax } of sources) {
    const target = path.join(COMPILED, file.replace(/\.ts$/, '.js'))
    await mkdir(path.dirname(target), { recursive: true })
    await writeFile(target, ts.transpileModule(syntax.text, { compilerOptions }).outputText)
  }
}

type Declared = { readonly name: string; readonly handle?: true; readonly place?: true }
type Row = { id: number; url: string; handle: string | null }

function entity({ name, handle, place }: Declared): new () => Row {
  const { NumberWithin, UniqueName, UniqueText } = library()
  const made = class implements Row {
    id!: number
    url!: string
    handle!: string | null
  }
  Object.defineProperty(made, 'name', { value: name })
  const { prototype } = made
  PrimaryGeneratedColumn('identity')(prototype, 'id')
  UniqueText()(prototype, 'url')
  if (handle) UniqueName({ namespace: name, nullable: true })(prototype, 'handle')
  if (place) {
    Column('integer')(prototype, 'list')
    NumberWithin({ scope: ['list'] })(prototype, 'place')
  }
  Entity(name)(made)
  return made
}

function openDataSource(url: string, declared: readonly Declared[], synchronize: boolean) {
  const classes = declared.map(entity)
  const entities = declared.some(({ handle }) => handle) ? [...classes, library().Name] : classes
  return { classes, dataSource: new DataSource({ type: 'postgres', url, entities, synchronize }) }
}

async function migrations(url: string): Promise<Figures> {
  const sizeOf = async (declared: readonly Declared[]): Promise<number> => {
    const { dataSource } = openDataSource(url, declared, false)
    await dataSource.initialize()
    const { upQueries, downQueries } = await dataSource.driver.createSchemaBuilder().log()
    await dataSource.destroy()
    // As TypeORM writes each of them into the file.
    const around = '        await queryRunner.query(``);\n'.length
    return [...upQueries, ...downQueries].reduce((sum, { query }) => sum + query.length + around, 0)
  }
  const entities = Array.from({ length: 14 }, (_, index): Declared => {
    const more: Omit<Declared, 'name'> = index < 8 ? {} : index < 11 ? { handle: true } : { place: true }
    return { name: `Entity${index}`, ...more }
  })
  const one = await sizeOf(entities.slice(0, 1))
  const kilobytes = (size: number): string => (size / 1_000).toFixed(1)
  return {
    'migration of one text, kB': kilobytes(one),
    '  of a second text': kilobytes((await sizeOf(entities.slice(0, 2))) - one),
    '  of fourteen entities (14 texts, 3 names, 3 numbers)': kilobytes(await sizeOf(entities)),
  }
}

/** Counts the functions of ours that run, and how deep the driver is called, in one call of an operation that ran before. */
async function calls(url: string): Promise<Figures> {
  const { findOrCreate, findOrCreateMany, rename, upsertByText } = library()
  const { classes, dataSource } = openDataSource(url, [{ name: 'Counted', handle: true }], true)
  const { manager } = await dataSource.initialize()
  const Counted = classes[0] as new () => Row
  let count = 0
  const fresh = (): { url: string } => ({ url: `http://example.com/${count++}` })
  const { entity: row } = await findOrCreate(manager, Counted, { url: 'http://example.com', handle: 'first' })
  const operations: Record<string, () => Promise<unknown>> = {
    hit: async () => await findOrCreate(manager, Counted, { url: 'http://example.com' }),
    miss: async () => await findOrCreate(manager, Counted, fresh()),
    'many of 2': async () => await findOrCreateMany(manager, Counted, [fresh(), fresh()]),
    upsert: async () => await upsertByText(manager, Counted, { url: 'http://example.com' }),
    rename: async () => await rename(manager, Counted, row.id, { handle: `name ${count++}` }),
  }
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  const figures: Figures = {}
  for (const [name, operation] of Object.entries(operations)) {
    // A streak of hits or misses changes which statement is sent.
    for (let round = 0; round < 20; round++) await operation()
    const frames = await framesIn(operation)
    await session.post('Profiler.takePreciseCoverage')
    await operation()
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const ours = result.filter((one) => one.url.startsWith(pathToFileURL(COMPILED).href) && countOf(one) > 0)
    figures[`${name}: calls / files / frames`] =
      `${ours.reduce((sum, one) => sum + countOf(one), 0)} / ${ours.length} / ${frames}`
  }
  session.disconnect()
  await dataSource.destroy()
  return figures
}

const countOf = ({ functions }: { functions: readonly { ranges: readonly { count: number }[] }[] }): number =>
  functions.reduce((sum, { ranges }) => sum + (ranges[0]?.count ?? 0), 0)

/** Counts our frames above the driver's `query`, at its deepest. */
async function framesIn(operation: () => Promise<unknown>): Promise<number> {
  const { prototype } = Client
  const query = Reflect.get(prototype, 'query') as () => unknown
  let frames = 1
  Error.stackTraceLimit = 100
  const counting = function (this: Client, ...args: unknown[]): unknown {
    frames = Math.max(frames, new Error().stack?.split(COMPILED).length ?? 0)
    return Reflect.apply(query, this, args)
  }
  Object.assign(prototype, { query: counting })
  try {
    await operation()
  } finally {
    Object.assign(prototype, { query })
  }
  return frames - 1
}

async function main(): Promise<void> {
  const sources = await readSources()
  const server = await findServer()
  const database = `figures ${process.pid}`
  await createDatabase(server.url, database)
  try {
    await compile(sources)
    const url = inDatabase(server.url, database)
    const documents = { 'README and docs, words': await wordsOfDocuments() }
    const tests = { 'test, lines': await linesBelow('test'), '  golden, lines': await linesBelow('test/golden') }
    const figures = { ...sizes(sources), ...names(sources), ...cycles(sources) }
    const all = { ...figures, ...(await migrations(url)), ...(await calls(url)), ...tests, ...documents }
    for (const [name, figure] of Object.entries(all)) console.log(`${name.padEnd(56)} ${figure}`)
  } finally {
    await rm(COMPILED, { recursive: true, force: true })
    await dropDatabase(server.url, database)
    await server.stop()
  }
}

void main()
