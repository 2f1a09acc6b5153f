import { Module } from '@nestjs/common'
import { TypeOrmModule } from '@nestjs/typeorm'
import { Bookmark } from './bookmark.entity.js'
import { BookmarksController } from './bookmarks.controller.js'
import { BookmarksService } from './bookmarks.service.js'

@Module({
  imports: [TypeOrmModule.forFeature([Bookmark])],
  controllers: [BookmarksController],
  providers: [BookmarksService],
})
export class BookmarksModule {}
