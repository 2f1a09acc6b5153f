import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, test } from 'vitest'
import * as root from '../../src'
import * as names from '../../src/names'
import * as normalizers from '../../src/text'
import * as numbers from '../../src/numbers'
import * as once from '../../src/once'
import * as typeormCalls from '../../src/typeorm-calls'
import * as stream from '../../src/stream'
import * as url from '../../src/url'

/** What an entry exports: a name here is a promise to users, so that a change of it is a change of the version. */
const PUBLIC = {
  'index.ts': {
    namespace: root,
    values: [
      'AttemptsExhaustedError',
      'ChainLimitError',
      'DeclarationError',
      'DuplicateTextError',
      'ImmutableTextError',
      'SchemaDriftError',
      'TextRejectedError',
      'TextTakenError',
      'TransactionAbortedError',
      'UniqueText',
      'UniqueTextEntity',
      'UniqueTextError',
      'UnsupportedDatabaseError',
      'WaitsForItselfError',
      'findOneByText',
      'findOrCreate',
      'findOrCreateMany',
      'insertOrFail',
      'uniqueTextSchema',
      'updateOrFail',
      'uniqueTextMethods',
      'upsertByText',
      'withUniqueText',
    ],
    types: [
      'ByOptions',
      'Changed',
      'Digest',
      'DigestName',
      'FindOneByTextOptions',
      'FindOrCreateManyOptions',
      'FindOrCreateManyResult',
      'FindOrCreateOptions',
      'FindOrCreateProgress',
      'FindOrCreateResult',
      'Finding',
      'Inserted',
      'Insertion',
      'Rejection',
      'RowChange',
      'RowId',
      'TakenText',
      'UniqueTextClassOptions',
      'UniqueTextColumn',
      'UniqueTextDataSourceOptions',
      'UniqueTextErrorCode',
      'UniqueTextMethods',
      'UniqueTextOptions',
      'UniqueTextPropertyOptions',
      'UpsertByTextOptions',
    ],
  },
  'text/index.ts': {
    namespace: normalizers,
    values: ['Refusal', 'collapseWhitespace', 'compose', 'email', 'lowerCase', 'nfc', 'normalizer', 'trim', 'url'],
    types: ['CanonicalUrlOptions', 'NormalizeOption', 'Normalizer'],
  },
  'typeorm-calls/index.ts': {
    namespace: typeormCalls,
    values: ['saveFindingTexts', 'textCondition', 'textEquals', 'textIn', 'toTextTakenError', 'uniqueTextPaths'],
    types: [],
  },
  'names/index.ts': {
    namespace: names,
    values: [
      'Name',
      'UniqueName',
      'findHolder',
      'findOrCreateHolder',
      'releaseExpired',
      'rename',
      'swapNames',
      'uniqueNameSchema',
    ],
    types: [
      'ByNameOptions',
      'FindHolderOptions',
      'FormerOption',
      'Holder',
      'ReleaseExpiredOptions',
      'UniqueNameOptions',
    ],
  },
  'numbers/index.ts': {
    namespace: numbers,
    values: ['NumberWithin', 'countWithin', 'numberWithinSchema'],
    types: ['CountWithinOptions', 'NumberWithinOptions'],
  },
  'once/index.ts': {
    namespace: once,
    values: ['OnceToken', 'TokenReusedError', 'forgetToken', 'once', 'removeExpiredTokens'],
    types: ['Duration', 'OnceOptions', 'OnceResult', 'RemoveExpiredTokensOptions'],
  },
  'stream/index.ts': {
    namespace: stream,
    values: ['findOrCreateStream', 'findOrCreateTransform'],
    types: ['FindOrCreateStreamOptions'],
  },
  'url/index.ts': { namespace: url, values: ['Url', 'formatUrl', 'parseUrl'], types: ['ParseManyOptions', 'UrlParts'] },
} as const

test.each(Object.entries(PUBLIC))('src/%s exports these names and no others', async (file, entry) => {
  expect(Object.keys(entry.namespace).sort()).toEqual([...entry.values].sort())
  const source = await readFile(path.join(import.meta.dirname, '../../src', file), 'utf8')
  expect(exportedTypes(source)).toEqual([...entry.types].sort())
})

test('the root exports no more values than can be read at a glance', () => {
  expect(Object.keys(root).length).toBeLessThanOrEqual(23)
})

test.each(Object.keys(PUBLIC))('the ESM face of src/%s is its CommonJS face', async (file) => {
  const source = await readFile(path.join(import.meta.dirname, '../../src', file.replace('.ts', '.mts')), 'utf8')
  expect(source).toBe(`export * from './index.js'\n`)
})

/** An entry says every name, in `export { … } from` or `export type { … } from`, so that reading it is enough. */
function exportedTypes(source: string): string[] {
  expect(source).not.toMatch(/export \*/)
  const clauses = [...source.matchAll(/export (?<type>type )?\{(?<names>[^}]+)\}/gu)]
  return clauses
    .flatMap(({ groups = {} }) => {
      const names = (groups['names'] ?? '').split(',').map((name) => name.trim())
      return groups['type'] ? names : names.filter((name) => name.startsWith('type ')).map((name) => name.slice(5))
    })
    .filter((name) => name !== '')
    .sort()
}
