import type { UniqueTextPropertyOptions } from '../../src'
import { column, deleteDate, entity, key, plain, text } from './entity'

/** What every page of a shop has, but for its key; the shop is the scope of its URL. */
const pageOf = (options: UniqueTextPropertyOptions) =>
  ({ title: plain(), url: text({ scope: ['shop'], ...options }), deletedAt: deleteDate() }) as const

/** One class of pages for each way in which Citus may place a table; the shop is a part of the key where it must be. */
export const citusPages = (options: UniqueTextPropertyOptions) => {
  const fields = { id: key('uuid'), shop: column('integer'), ...pageOf(options) }
  return {
    ByScope: entity('ByScope', { ...fields, shop: key('integer') }),
    OneShard: entity('OneShard', fields),
    OfTenant: entity('OfTenant', fields, { schema: 'tenant' }),
    ByHash: entity('ByHash', { ...fields, ...pageOf({ ...options, spread: 'citus' }) }),
    fields,
  } as const
}
