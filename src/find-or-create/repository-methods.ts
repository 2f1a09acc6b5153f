import type { DeepPartial, ObjectLiteral, Repository } from 'typeorm'
import type {
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  UpsertByTextOptions,
} from '../rows/call-options'
import type { GivenValues, Naming } from '../rows/given-values'
import { findOrCreateMany, type FindOrCreateManyResult } from './find-or-create-many'
import { findOneByText, findOrCreate, type FindOrCreateResult } from './find-or-create'
import { upsertByText } from './upsert'
import { insertOrFail, type Writable } from './insert-or-fail'
import { type RowId, updateOrFail } from './update-or-fail'

/** What `repository.extend(uniqueTextMethods)` adds. Each method uses the repository's own manager. */
export interface UniqueTextMethods {
  findOrCreate<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOrCreateOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateResult<Entity>>
  findOrCreateMany<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
    options?: Naming<By, FindOrCreateManyOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  findOneByText<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOneByTextOptions<NoInfer<Entity>>>,
  ): Promise<Entity | null>
  upsertByText<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    rows: readonly DeepPartial<NoInfer<Entity>>[],
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  upsertByText<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    row: DeepPartial<NoInfer<Entity>>,
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>>
  insertOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: readonly Writable<NoInfer<Entity>>[],
  ): Promise<Entity[]>
  insertOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
  updateOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    id: RowId<NoInfer<Entity>>,
    changes: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
}

/**
 * The operations of this package as methods of a repository.
 *
 * @example
 * const pages = dataSource.getRepository(Page).extend(uniqueTextMethods)
 * const { entity, created } = await pages.findOrCreate({ url: 'http://example.com/' })
 */
export const uniqueTextMethods: UniqueTextMethods = {
  async findOrCreate(values, options) {
    return await findOrCreate(this.manager, this.target, values, options)
  },
  async findOrCreateMany(inputs, options) {
    return await findOrCreateMany(this.manager, this.target, inputs, options)
  },
  async findOneByText(values, options) {
    return await findOneByText(this.manager, this.target, values, options)
  },
  upsertByText: upsert,
  async insertOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: Writable<Entity> | readonly Writable<Entity>[],
  ): Promise<Entity & Entity[]> {
    return (await insertOrFail(this.manager, this.target, values as DeepPartial<Entity>)) as Entity & Entity[]
  },
  async updateOrFail(id, changes) {
    return await updateOrFail(this.manager, this.target, id, changes)
  },
}

type Rows<Entity> = DeepPartial<Entity> & readonly DeepPartial<Entity>[]

/** Both overloads in one: the argument decides which one it is. */
async function upsert<Entity extends ObjectLiteral>(
  this: Repository<Entity>,
  rows: Rows<Entity>,
  options?: UpsertByTextOptions<Entity>,
): Promise<never> {
  return (await upsertByText<Entity>(this.manager, this.target, rows, options)) as never
}
