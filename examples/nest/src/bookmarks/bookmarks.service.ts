import { Injectable } from '@nestjs/common'
import { InjectRepository } from '@nestjs/typeorm'
import { Repository } from 'typeorm'
import { insertOrFail, updateOrFail } from 'typeorm-unique-text'
import { Bookmark } from './bookmark.entity.js'
import type { CreateBookmark, ListBookmarks } from './bookmarks.dto.js'

/** Catches nothing, and asks for nothing before it writes: filters make answers of the errors. */
@Injectable()
export class BookmarksService {
  constructor(@InjectRepository(Bookmark) private readonly bookmarks: Repository<Bookmark>) {}

  /** @throws TextTakenError with every text that is taken, and by which bookmark */
  async create(values: CreateBookmark): Promise<Bookmark> {
    return await insertOrFail(this.bookmarks.manager, Bookmark, values)
  }

  /** @throws TextTakenError, EntityNotFoundError */
  async rename(id: number, name: string): Promise<Bookmark> {
    return await updateOrFail(this.bookmarks.manager, Bookmark, id, { name })
  }

  /** A URL is found by index, however it is spelt. */
  async list({ url, take, skip }: ListBookmarks): Promise<Bookmark[]> {
    const where = url === undefined ? {} : { url }
    return await this.bookmarks.find({ where, order: { id: 'ASC' }, take, skip })
  }

  /** @throws EntityNotFoundError */
  async find(id: number): Promise<Bookmark> {
    return await this.bookmarks.findOneByOrFail({ id })
  }
}
