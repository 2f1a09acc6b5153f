import { DataSource } from 'typeorm'
import { expect, test } from 'vitest'
import { DeclarationError, type UniqueTextDataSourceOptions, uniqueTextSchema, withUniqueText } from '../../../src'
import { checkOptions } from '../../../src/options'
import { trim } from '../../../src/text'
import { digests } from '../../../src/text/digest'
import { NORMALIZE } from '../../../src/text/normalizer'
import { CLASS_RULES, PROPERTY_RULES, toRawDeclaration } from '../../../src/registry/options'

const own = { name: 'own', type: 'uuid', js: String, sql: String } as const

/** The message; undefined where the options pass. */
function refusal(options: object): string | undefined {
  try {
    checkOptions('@UniqueText on Page.url', options, { ...PROPERTY_RULES, ...CLASS_RULES })
    return undefined
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error
    return error.message
  }
}

test.each([
  {},
  { scope: [] },
  { scope: ['site', 'tenant'] },
  { digest: 'md5' },
  { digest: 'sha256' },
  { digest: own },
  { immutable: false },
  { ignoreDeleted: true },
  { maxChainLength: 1 },
  { maxChainLength: 2 ** 31 - 1 },
  { indexName: 'page url' },
  { hidden: {} },
  { hidden: { hash: 'h' } },
  { normalize: trim() },
  { nullable: true },
  { name: 'address' },
  { as: 'address' },
  { columns: ['path'] },
  { columns: [{ property: 'path' }, { property: 'query', prefix: '' }] },
  { parse: () => null },
  { scope: undefined, digest: undefined, maxChainLength: undefined },
])('%o passes', (options) => {
  expect(refusal(options)).toBeUndefined()
})

const COLUMNS = 'a list of property names, or of { property, prefix, normalize }'
const HIDDEN = 'an object with the names hash, number and chained'

test.each([
  [{ scope: 'site' }, 'scope', 'a list of property names'],
  [{ scope: [''] }, 'scope', 'a list of property names'],
  [{ scope: ['site', 1] }, 'scope', 'a list of property names'],
  [{ digest: 'md4' }, 'digest', 'one of md5, sha256'],
  [{ digest: 'toString' }, 'digest', 'one of md5, sha256'],
  [{ digest: null }, 'digest', 'one of md5, sha256'],
  [{ digest: 0 }, 'digest', 'one of md5, sha256'],
  [{ digest: { name: 'own', type: 'uuid', js: String } }, 'digest', 'one of md5, sha256'],
  [{ immutable: 1 }, 'immutable', 'true or false'],
  [{ ignoreDeleted: 'yes' }, 'ignoreDeleted', 'true or false'],
  [{ nullable: 'no' }, 'nullable', 'true or false'],
  [{ maxChainLength: 0 }, 'maxChainLength', 'a whole number from 1 to 2147483647'],
  [{ maxChainLength: 1.5 }, 'maxChainLength', 'a whole number from 1 to 2147483647'],
  [{ maxChainLength: '5' }, 'maxChainLength', 'a whole number from 1 to 2147483647'],
  [{ maxChainLength: 2 ** 31 }, 'maxChainLength', 'a whole number from 1 to 2147483647'],
  [{ indexName: '' }, 'indexName', 'a non-empty string'],
  [{ name: 1 }, 'name', 'a non-empty string'],
  [{ as: null }, 'as', 'a non-empty string'],
  [{ hidden: { hash: '' } }, 'hidden', HIDDEN],
  [{ hidden: null }, 'hidden', HIDDEN],
  [{ normalize: 'trim' }, 'normalize', NORMALIZE.expected],
  [{ normalize: null }, 'normalize', NORMALIZE.expected],
  [{ normalize: (text: string) => text }, 'normalize', NORMALIZE.expected],
  [{ normalize: trim }, 'normalize', NORMALIZE.expected],
  [{ columns: [] }, 'columns', COLUMNS],
  [{ columns: 'path' }, 'columns', COLUMNS],
  [{ columns: ['path', {}] }, 'columns', COLUMNS],
  [{ columns: [null] }, 'columns', COLUMNS],
  [{ columns: [{ property: '' }] }, 'columns', COLUMNS],
  [{ columns: [{ property: 'p', prefix: 1 }] }, 'columns', COLUMNS],
  [{ columns: [{ property: 'p', prefx: '?' }] }, 'columns', COLUMNS],
  [{ hidden: { has: 'h' } }, 'hidden', HIDDEN],
  [{ parse: 'url' }, 'parse', 'a function'],
])('%o is refused, and the message says what is expected', (options, name, expected) => {
  const message = refusal(options)
  expect(message).toContain('Page.url')
  expect(message).toContain(name)
  expect(message).toContain(expected)
})

test.each([
  [{}, "needs digest: 'sha256'"],
  [{ digest: 'md5' }, "needs digest: 'sha256'"],
  [{ digest: own }, "needs digest: 'sha256'"],
  [{ digest: 'sha256', immutable: true }, 'cannot be combined with immutable'],
  [{ digest: 'sha256', maxChainLength: 5 }, 'cannot be combined with maxChainLength'],
] as const)('guard: false refuses what needs a guard: %o', (options, message) => {
  const declare = (guard: boolean) => (): unknown =>
    toRawDeclaration('Page.url', 'url', [{ property: 'url' }], { ...options, guard })
  expect(declare(false)).toThrow(DeclarationError)
  expect(declare(false)).toThrow(`@UniqueText on Page.url: guard: false ${message}`)
  expect(declare(true)).not.toThrow()
})

test.each(['unique', 'constructor', 'Scope'])('there is no option %s', (name) => {
  expect(refusal({ [name]: true })).toContain(`"${name}"`)
})

test.each([
  [{ prepared: false }, 'there is no option "prepared"'],
  [{ prepare: 'no' }, 'prepare must be true or false'],
])('withUniqueText refuses %o', (options, message) => {
  const dataSource = new DataSource({ type: 'postgres' })
  expect(() => withUniqueText(dataSource, options as UniqueTextDataSourceOptions)).toThrow(message)
})

test.each([[{ type: 'postgres' }], [undefined], [null]])('withUniqueText asks for a DataSource, not %o', (given) => {
  const call = (): unknown => withUniqueText(given as unknown as DataSource)
  expect(call).toThrow(DeclarationError)
  expect(call).toThrow('new DataSource(options)')
})

test.each([
  [undefined, 'an object with the unique texts'],
  ['url', 'an object with the unique texts'],
  [[{}], 'an object with the unique texts'],
  [{ url: 'trim' }, '@UniqueText on Page.url: the options must be an object'],
])('uniqueTextSchema refuses the texts %j', (texts, message) => {
  const declare = (): unknown => uniqueTextSchema({ name: 'Page', columns: {} }, texts as unknown as { url: object })
  expect(declare).toThrow(DeclarationError)
  expect(declare).toThrow(message)
})

test('options that are no object are refused', () => {
  expect(refusal('url' as unknown as object)).toContain('object')
  expect(refusal(null as unknown as object)).toContain('object')
})

test('what is not said has its default', () => {
  expect(toRawDeclaration('Page.url', 'url', [{ property: 'url' }], {})).toMatchObject({
    name: 'url',
    columns: [{ property: 'url', prefix: '' }],
    scope: [],
    digest: digests.md5,
    immutable: false,
    ignoreDeleted: false,
    indexName: undefined,
    hidden: {},
    parse: undefined,
  })
})

test('what is said is kept', () => {
  const options = {
    scope: ['host'],
    digest: 'sha256',
    immutable: true,
    maxChainLength: 7,
    indexName: 'i',
    hidden: { hash: 'h' },
    parse: () => null,
  } as const
  const columns = [
    { property: 'path', normalize: trim() },
    { property: 'query', prefix: '?' },
  ]
  const declaration = toRawDeclaration('Url', 'address', columns, options)
  expect(declaration).toMatchObject({ ...options, digest: digests.sha256, name: 'address' })
  expect(declaration.columns.map(({ property, prefix }) => [property, prefix])).toEqual([
    ['path', ''],
    ['query', '?'],
  ])
  expect(declaration.columns[0]?.normalizer.name).toBe('trim')
})

test("a digest of one's own is taken as it is", () => {
  expect(toRawDeclaration('Page.url', 'url', [{ property: 'url' }], { digest: own }).digest).toBe(own)
})

test.each([
  [[{ property: 'url' }, { property: 'url' }], []],
  [[{ property: 'url' }], ['url']],
  [[{ property: 'url' }], ['site', 'site']],
])('a property that is named twice is refused: %o, scope %o', (columns, scope) => {
  expect(() => toRawDeclaration('Page.url', 'url', columns, { scope })).toThrow(/named twice|twice/u)
})
