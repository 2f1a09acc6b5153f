import type { DeepPartial, ObjectLiteral, Repository } from 'typeorm'
import type {
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  UpsertByTextOptions,
} from './call-options'
import { findOrCreateMany, type FindOrCreateManyResult } from './find-or-create-many'
import { findOneByText, findOrCreate, type FindOrCreateResult } from './find-or-create'
import { upsertByText } from './upsert'

/** What `repository.extend(uniqueTextMethods)` adds. Each method uses the repository's own manager. */
export interface UniqueTextMethods {
  findOrCreate<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: DeepPartial<NoInfer<Entity>>,
    options?: FindOrCreateOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>>
  findOrCreateMany<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    inputs: readonly DeepPartial<NoInfer<Entity>>[],
    options?: FindOrCreateManyOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  findOneByText<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: DeepPartial<NoInfer<Entity>>,
    options?: FindOneByTextOptions<NoInfer<Entity>>,
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
}

type Rows<Entity> = DeepPartial<Entity> & readonly DeepPartial<Entity>[]

/** Both forms in one: which one it is, its argument says. */
async function upsert<Entity extends ObjectLiteral>(
  this: Repository<Entity>,
  rows: Rows<Entity>,
  options?: UpsertByTextOptions<Entity>,
): Promise<never> {
  return (await upsertByText<Entity>(this.manager, this.target, rows, options)) as never
}
