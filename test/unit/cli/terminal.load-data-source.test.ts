import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DataSourceFileError, loadDataSource } from '../../../src/cli/terminal'

const typeorm = require.resolve('typeorm')
const one = `new (require(${JSON.stringify(typeorm)}).DataSource)({ type: 'postgres' })`
const esm = `import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);`

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'unique-text-config-'))
})
afterAll(() => rm(folder, { recursive: true }))

let files = 0
async function load(extension: string, content: string): Promise<unknown> {
  files += 1
  const file = path.join(folder, `config-${files}.${extension}`)
  await writeFile(file, content)
  return (await loadDataSource(file)).options.type
}

describe('loadDataSource', () => {
  test.each([
    ['cjs', `module.exports = ${one}`],
    ['cjs', `exports.default = ${one}; exports.__esModule = true`],
    ['cjs', `exports.source = ${one}; exports.other = 1`],
    ['cjs', `exports.source = Promise.resolve(${one})`],
    ['cjs', `const source = ${one}; module.exports = { source, default: source }`],
    ['mjs', `${esm} export default ${one}`],
    ['mjs', `${esm} export const source = Promise.resolve(${one}); export const entities = []`],
  ])('takes the only DataSource of a .%s file: %s', async (extension, content) => {
    expect(await load(extension, content)).toBe('postgres')
  })

  test.each([
    ['exports no DataSource', 'module.exports = { a: 1 }'],
    ['exports no DataSource', 'module.exports = null'],
    ['exports several DataSources', `exports.a = ${one}; exports.b = ${one}`],
    ['cannot be loaded: no luck', `throw new Error('no luck')`],
    ['cannot be loaded: Cannot find module', `require('./no-such-file')`],
  ])('a file that %s is refused', async (message, content) => {
    const loading = load('cjs', content)
    await expect(loading).rejects.toThrow(DataSourceFileError)
    await expect(loading).rejects.toThrow(message)
  })

  const withUrl = (url: string): string => one.replace(`'postgres'`, `'postgres', url: ${JSON.stringify(url)}`)

  test.each(['not-a-url', 'localhost:5432/secret', 'mysql://root:secret@localhost/'])(
    'a url that is not a connection string is refused, and not shown: %s',
    async (url) => {
      const loading = load('cjs', `module.exports = ${withUrl(url)}`)
      await expect(loading).rejects.toThrow(DataSourceFileError)
      await expect(loading).rejects.toThrow(/^The "url" of the DataSource in .* is not a connection string\./)
      await expect(loading).rejects.not.toThrow(url)
    },
  )

  test.each(['postgres://a/b', 'POSTGRESQL://a/b', 'socket:/run/postgresql?db=a', '/run/postgresql a', ''])(
    'a url that pg understands is taken: %s',
    async (url) => {
      expect(await load('cjs', `module.exports = ${withUrl(url)}`)).toBe('postgres')
    },
  )

  test('a file that is not there is refused by its name', async () => {
    await expect(loadDataSource('no/such/ormconfig.cjs')).rejects.toThrow('There is no file "no/such/ormconfig.cjs".')
  })
})
