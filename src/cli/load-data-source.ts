import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { type DataSource, InstanceChecker } from 'typeorm'

/** The file does not export a DataSource that can be used. The message says what to do. */
export class DataSourceFileError extends Error {
  override readonly name = 'DataSourceFileError'
}

/**
 * Loads the DataSource that a file exports, like TypeORM's own commands: as its default or under a name, perhaps as a
 * promise, from an ES module or CommonJS. A TypeScript file is loaded by the `tsx` installed beside it, if there is one.
 *
 * @param file relative to the working directory
 * @throws DataSourceFileError
 */
export async function loadDataSource(file: string): Promise<DataSource> {
  const absolute = path.resolve(file)
  const found = new Set<DataSource>()
  for (const value of await exportsOf(absolute, file)) {
    const dataSource = await value
    if (InstanceChecker.isDataSource(dataSource)) found.add(dataSource)
  }
  const [only] = found
  if (only && found.size === 1) return withConnectionString(only, file)
  throw new DataSourceFileError(
    only
      ? `"${file}" exports several DataSources. Export only one.`
      : `"${file}" exports no DataSource. Export one: export default new DataSource({ … }).`,
  )
}

/** A word in place of a URL would be looked up as the host "base", by `pg`. The value may hold a password. */
function withConnectionString(dataSource: DataSource, file: string): DataSource {
  const { options } = dataSource
  if (options.type !== 'postgres' || typeof options.url !== 'string' || options.url === '') return dataSource
  if (/^(?:postgres|postgresql|socket):|^\//i.test(options.url)) return dataSource
  throw new DataSourceFileError(
    `The "url" of the DataSource in "${file}" is not a connection string. ` +
      'Expected postgres://user:password@host:5432/database; is DATABASE_URL set right?',
  )
}

/** All that a file exports; a TypeScript file is loaded as above. @throws DataSourceFileError */
export async function loadModule(file: string): Promise<readonly unknown[]> {
  return await exportsOf(path.resolve(file), file)
}

/** For CommonJS the namespace's default is `module.exports`, whose own `default` is TypeScript's default export. */
async function exportsOf(absolute: string, file: string): Promise<unknown[]> {
  const module = await load(absolute, file)
  const inner = module['default']
  const isModule = typeof inner === 'object' && inner !== null && !InstanceChecker.isDataSource(inner)
  return [...Object.values(module), ...(isModule ? Object.values(inner) : [])]
}

async function load(absolute: string, file: string): Promise<Record<string, unknown>> {
  const typeScript = /\.[cm]?ts$/.test(absolute)
  const loader = typeScript && (await registerTsx(absolute))
  try {
    return (await import(pathToFileURL(absolute).href)) as Record<string, unknown>
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    if (isMissing(error, absolute)) throw new DataSourceFileError(`There is no file "${file}".`, { cause: error })
    const advice = typeScript && !loader && NEEDS_TSX.has(codeOf(error)) ? `\n${TSX_ADVICE}` : ''
    throw new DataSourceFileError(`"${file}" cannot be loaded: ${message}${advice}`, { cause: error })
  }
}

const TSX_ADVICE = 'Node.js cannot load this TypeScript by itself: npm install --save-dev tsx, and run this again.'

/** What Node.js 20 says, and later versions, which strip types but know no decorators or imports without extension. */
const NEEDS_TSX: ReadonlySet<unknown> = new Set([
  'ERR_UNKNOWN_FILE_EXTENSION',
  'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX',
  'ERR_INVALID_TYPESCRIPT_SYNTAX',
  'ERR_UNSUPPORTED_DIR_IMPORT',
  'ERR_MODULE_NOT_FOUND',
  'MODULE_NOT_FOUND',
  'SyntaxError',
])

function codeOf(error: unknown): unknown {
  const { code, name } = error as { code?: unknown; name?: unknown }
  return code ?? name
}

/** Does what `node --import tsx` does, and nothing if that was given: a module is loaded only once. */
async function registerTsx(absolute: string): Promise<boolean> {
  let loader: string
  try {
    loader = createRequire(absolute).resolve('tsx')
  } catch {
    return false
  }
  await import(pathToFileURL(loader).href)
  return true
}

function isMissing(error: unknown, absolute: string): boolean {
  const { code, url } = error as { code?: unknown; url?: unknown }
  return code === 'ERR_MODULE_NOT_FOUND' && (url === undefined || url === pathToFileURL(absolute).href)
}
