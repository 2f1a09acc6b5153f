import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, test } from 'vitest'
import * as root from '../../src'
import * as adopting from '../../src/adopt'
import * as errors from '../../src/errors'
import * as doctor from '../../src/doctor'
import * as names from '../../src/names'
import * as normalizers from '../../src/text'
import * as numbers from '../../src/numbers'
import * as once from '../../src/once'
import * as typeormCalls from '../../src/typeorm-calls'
import * as stream from '../../src/stream'
import * as url from '../../src/url'

const words = (text: string): string[] => text.trim().split(/\s+/)

/** What an entry exports: a name here is a promise to users, so that a change of it is a change of the version. */
const PUBLIC = {
  'errors.ts': {
    namespace: errors,
    values: words(`
      AttemptsExhaustedError ChainLimitError DataSourceDestroyedError DeclarationError DuplicateTextError
      HashCollisionError ImmutableTextError OnceFailedError OnceRunningError SchemaDriftError TextRejectedError
      TextTakenError TokenReusedError TransactionAbortedError UniqueTextError UnsupportedDatabaseError
      WaitsForItselfError httpStatusOf`),
    types: words(`Finding Rejection TakenText UniqueTextErrorCode`),
  },
  'index.ts': {
    namespace: root,
    values: words(`
      UniqueText UniqueTextEntity countByText deleteByText existsByText findOneByText findOrCreate
      findOrCreateMany firstFreeText hashOf insertOrFail insertOrNull normalizeTexts uniqueTextSchema updateOrFail
      uniqueTextMethods upsertByText withUniqueText`),
    types: words(`
      ByOptions Changed CountByTextOptions DeleteByTextOptions Digest DigestName FindOneByTextOptions
      FindOrCreateManyOptions FindOrCreateManyResult FindOrCreateOptions FindOrCreateProgress FindOrCreateResult
      FreeTextOptions Inserted Insertion OperationEvent RowChange RowId SqlOfRow TextHash UniqueTextClassOptions
      UniqueTextColumn UniqueTextDataSourceOptions UniqueTextMethods UniqueTextOptions UniqueTextPropertyOptions
      UpsertByTextOptions`),
  },
  'adopt/index.ts': {
    namespace: adopting,
    values: words(`
      AdoptionError abandon adopt adoptionStatus checkMerge describeHolder mergeDuplicates planAdoption`),
    types: words(`
      AbandonOptions AdoptOptions AdoptProgress AdoptReport AdoptStep AdoptionLock AdoptionReason AdoptionStatus
      Duplicates KeptRow LockHolder MergeOptions MergeProgress MergeReport PlannedStep
      RefusedRow RunningCommand RedirectedReferences`),
  },
  'text/index.ts': {
    namespace: normalizers,
    values: words(`Refusal collapseWhitespace compose email lowerCase nfc normalizer trim url`),
    types: words(`CanonicalUrlOptions Normalizer`),
  },
  'typeorm-calls/index.ts': {
    namespace: typeormCalls,
    values: words(`textCondition textEquals textIn toTextTakenError uniqueTextPaths`),
    types: [] as string[],
  },
  'doctor/index.ts': {
    namespace: doctor,
    values: ['doctor'],
    types: words(`
      DoctorAdoption DoctorCode DoctorDeclaration DoctorFinding DoctorGroups DoctorKey DoctorLock DoctorOptions
      DoctorProgress DoctorReport DoctorSeverity DoctorTable`),
  },
  'names/index.ts': {
    namespace: names,
    values: words(`
      Name UniqueName findHolder findOrCreateHolder formerNamesOf releaseExpired rename swapNames uniqueNameSchema`),
    types: words(`
      ByNameOptions FindHolderOptions FormerName FormerOption Holder ReleaseExpiredOptions UniqueNameOptions`),
  },
  'numbers/index.ts': {
    namespace: numbers,
    values: words(`NumberWithin countWithin numberWithinSchema recount`),
    types: words(`CountWithinOptions NumberWithinOptions`),
  },
  'once/index.ts': {
    namespace: once,
    values: words(`
      OnceFailedError OnceRunningError OnceToken TokenReusedError forgetToken once removeExpiredTokens tokenOf`),
    types: words(`Duration OnceOptions OnceResult RemoveExpiredTokensOptions TokenAnswer`),
  },
  'stream/index.ts': {
    namespace: stream,
    values: words(`findOrCreateStream findOrCreateTransform`),
    types: words(`FindOrCreateStreamOptions`),
  },
  'url/index.ts': {
    namespace: url,
    values: words(`Url formatUrl parseUrl`),
    types: words(`ParseManyOptions ParseOptions UrlParts`),
  },
}

test.each(Object.entries(PUBLIC))('src/%s exports these names and no others', async (file, entry) => {
  const values = entry.namespace === root ? ownNames(root) : Object.keys(entry.namespace)
  expect(values.toSorted()).toEqual(entry.values.toSorted())
  const source = await readFile(path.join(import.meta.dirname, '../../src', file), 'utf8')
  expect(exportedTypes(source)).toEqual(entry.types.toSorted())
})

/** Without the errors, which the root exports as the entry of their own does. */
const ownNames = (all: object): string[] => Object.keys(all).filter((name) => !(name in errors))

test('the root exports no more values than can be read at a glance, and every error', () => {
  expect(ownNames(root).length).toBeLessThanOrEqual(18)
  expect(root).toMatchObject(errors)
})

test('the entry of the errors loads nothing', async () => {
  const source = await readFile(path.join(import.meta.dirname, '../../src/errors.ts'), 'utf8')
  expect(source.match(/^import .*/gmu)).toEqual([`import type { ObjectLiteral } from 'typeorm'`])
})

test.each(Object.keys(PUBLIC))('the ESM face of src/%s is its CommonJS face', async (file) => {
  const source = await readFile(path.join(import.meta.dirname, '../../src', file.replace('.ts', '.mts')), 'utf8')
  expect(source).toBe(`export * from './${path.basename(file, '.ts')}.js'\n`)
})

/**
 * An entry says every name, in `export { … } from` or `export type { … } from`, so that reading it is enough; that of the
 * errors declares them, and the root has it whole.
 */
function exportedTypes(source: string): string[] {
  expect(source.replace(`export * from './errors'`, '')).not.toMatch(/export \*/)
  const declared = [...source.matchAll(/^export (?:type|interface) (\w+)/gmu)].map(([, name = '']) => name)
  const clauses = [...source.matchAll(/export (?<type>type )?\{(?<names>[^}]+)\}/gu)]
  const listed = clauses.flatMap(({ groups = {} }) => {
    const names = (groups['names'] ?? '').split(',').map((name) => name.trim())
    return groups['type'] ? names : names.filter((name) => name.startsWith('type ')).map((name) => name.slice(5))
  })
  return [...declared, ...listed].filter((name) => name !== '').sort()
}
